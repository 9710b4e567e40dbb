"""Claiming a store: the marker is written when a broker starts and before every sweep."""

from stratalog.checks.marker import (
    MARKER_KEY,
    StoreMarker,
    check_claim,
    check_marker,
    encode_marker,
    marker_missing,
    read_marker,
)
from stratalog.checks.segment_place import are_apart, check_holds_segments, check_noted
from stratalog.control.model import Cluster
from stratalog.control.plane import ControlPlane
from stratalog.errors import RetriableError
from stratalog.objects.store import (
    Create,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectStore,
    PutMode,
    Replace,
)

_ATTEMPTS = 20
"""Each lost race means that another broker won one, so that many brokers starting at once get
through; the bound is there for a store whose ETags never match."""


class MarkerContendedError(RetriableError):
    """Others changed the marker each time that we were about to."""


async def claim_store(control: ControlPlane, store: ObjectStore) -> Cluster:
    """Make this store this cluster's, or refuse. For the start of a broker."""
    return await _write_next(control, store, may_create=True)


async def renew_claim(control: ControlPlane, store: ObjectStore) -> Cluster:
    """Check that the store is still this cluster's and raise its generation.

    Unlike `claim_store` it does not make a missing marker: a store that lost it is not the one
    that was claimed.
    """
    return await _write_next(control, store, may_create=False)


async def claim_segments(control: ControlPlane, store: ObjectStore, own: ObjectStore) -> None:
    """Make `own` the store of this cluster's segments, beside that of its blocks or the same one,
    or refuse. For the start of a broker, after it has claimed `store`.

    A store without a marker is new, or it is the folder where another should be mounted.
    """
    if own is not store:
        if await read_marker(own) is None:
            await check_holds_segments(control, own)
        await claim_store(control, own)
    check_noted(await control.note_segments_apart(are_apart(store, own)), store, own)


async def check_segments(control: ControlPlane, store: ObjectStore, own: ObjectStore) -> None:
    """Raise unless `own` is where brokers look for this cluster's segments. Changes nothing."""
    cluster = await control.cluster()
    if not cluster.generation:
        return
    check_noted(cluster.segments_apart, store, own)
    if own is not store:
        await check_claim(control, own, setting="remote.objects")
    if cluster.segments_apart is None:
        await check_holds_segments(control, own)


async def _write_next(control: ControlPlane, store: ObjectStore, *, may_create: bool) -> Cluster:
    for _ in range(_ATTEMPTS):
        found = await read_marker(store)
        mode: PutMode = Create()
        if found is not None:
            check_marker(found[0], await control.cluster())
            mode = Replace(etag=found[1])
        elif not may_create:
            raise marker_missing(store)
        cluster = await control.next_generation()
        marker = StoreMarker(cluster_id=cluster.cluster_id, generation=cluster.generation)
        try:
            await store.put(MARKER_KEY, [encode_marker(marker)], mode=mode)
        except (ObjectExistsError, ObjectChangedError, ObjectNotFoundError):
            continue
        return cluster
    raise MarkerContendedError(
        f"{MARKER_KEY} in {store.url} changed {_ATTEMPTS} times while it was being claimed: "
        "try again; if it stays so, the store does not keep conditional puts"
    )
