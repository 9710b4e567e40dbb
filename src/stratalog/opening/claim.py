"""Claims on stores: making a store this cluster's, and checking that it still is.

The first claim of a cluster needs an empty store, and writes the marker before it raises the
generation. A generation above 0 therefore means that the cluster's store has a marker, so that a
store without one is another store: the empty folder on which the right store is not mounted, or a
mistyped prefix. Only an operator can know better, and says so by `claim_anew`.

A claim has two steps, and a crash between them leaves:

1. The control plane notes a fresh claim id, and raises the generation. The marker still has an
   earlier claim, which stays in the list, and a generation that is not ahead: nothing happened.
2. The marker is put, if it has not changed since it was read. Of programs that claim at once, one
   wins and the others begin again. Their claims stay in the list until a later one was seen in the
   marker: from then on their puts, which expect an earlier marker, cannot succeed.
"""

from uuid import UUID

from stratalog.control.identity.model import Cluster, StoreRole
from stratalog.control.plane import ControlPlane
from stratalog.control.writers.counting import halted_text
from stratalog.control.writers.errors import ControlPlaneHaltedError
from stratalog.objects.errors import ObjectChangedError, ObjectExistsError, ObjectNotFoundError
from stratalog.objects.store import Create, ObjectStore, PutMode, Replace
from stratalog.opening.errors import (
    ControlPlaneBehindError,
    MarkerContendedError,
    MarkerMissingError,
    StoreSetBackError,
)
from stratalog.opening.marker import (
    MARKER_KEY,
    StoreMarker,
    check_marker,
    check_owner,
    check_store_id,
    encode_marker,
    marker_missing,
    read_marker,
)
from stratalog.opening.segment_store import are_apart, check_holds_segments, check_noted
from stratalog.opening.vacancy import check_vacant

_SETTINGS = {StoreRole.BLOCKS: "storage.objects", StoreRole.SEGMENTS: "remote.objects"}
_ATTEMPTS = 20
"""Each lost race means that another broker won one, so many brokers that start at once all get
through. The bound is for a store whose ETags never match."""


async def claim_store(
    control: ControlPlane, store: ObjectStore, role: StoreRole = StoreRole.BLOCKS
) -> Cluster:
    """Make this store this cluster's, or refuse. For the start of a broker.

    Once a broker has claimed a store, a store without a marker is refused: records that were
    acknowledged into it would be out of reach as soon as the right store is back.
    """
    for _ in range(_ATTEMPTS):
        if await read_marker(store) is not None:
            break
        cluster = await control.identity.cluster()
        if not cluster.generation:
            await check_vacant(control, store, _SETTINGS[role])
            await _create(control, store, role)
        # Between the two reads another broker may have made the first claim.
        elif await read_marker(store) is None:
            raise _missing(store, role)
    return await _write_next(control, store, role)


async def claim_anew(
    control: ControlPlane,
    store: ObjectStore,
    role: StoreRole = StoreRole.BLOCKS,
    *,
    restored: bool = False,
) -> bool:
    """Give a store without a marker this cluster's, whatever the control plane knows.

    For an operator who knows that this is the right store. Returns False if it has the marker
    already. A marker of another cluster or store, of a newer control plane, or of an unknown claim
    is refused. A control plane that was `restored` takes over the claim that it finds.
    """
    created = False
    found = await read_marker(store)
    if found is None:
        # A control plane that was restored is the usual reason, and nothing else tells it apart.
        await control.identity.skip_producer_ids()
        created = await _create(control, store, role)
    elif restored:
        cluster = await control.identity.cluster()
        check_owner(found[0], cluster)
        check_store_id(found[0], cluster, role)
        await control.identity.take_over(role, found[0].store_id, found[0].claim)
    await _write_next(control, store, role)
    return created


async def renew_claim(
    control: ControlPlane, store: ObjectStore, role: StoreRole = StoreRole.BLOCKS
) -> Cluster:
    """Check that the store is still this cluster's and raise its generation.

    Unlike `claim_store`, it does not create a missing marker: a store without one is not the store
    that was claimed.
    """
    return await _write_next(control, store, role)


async def claim_segments(control: ControlPlane, store: ObjectStore, own: ObjectStore) -> None:
    """Make `own` the store of this cluster's segments, or refuse.

    For the start of a broker, after it has claimed `store`, which holds the blocks and may be the
    same. If `own` has no marker, it is new, has segments that were moved there, or is another place
    than the right one: the empty folder on which that is not mounted, or a foreign store.
    """
    if own is not store:
        if await read_marker(own) is None:
            if not await check_holds_segments(control, own):
                await check_vacant(control, own, _SETTINGS[StoreRole.SEGMENTS])
            await _create(control, own, StoreRole.SEGMENTS)
        await claim_store(control, own, StoreRole.SEGMENTS)
    check_noted(await control.identity.note_segments_apart(are_apart(store, own)), store, own)


async def check_running(control: ControlPlane) -> None:
    """Raise if the cluster is halted, for programs that write."""
    cluster = await control.identity.cluster()
    if cluster.halted_reason is not None:
        raise ControlPlaneHaltedError(halted_text(cluster.halted_reason))


async def check_claim(
    control: ControlPlane, store: ObjectStore, role: StoreRole = StoreRole.BLOCKS
) -> None:
    """Raise unless the store has this cluster's marker. Changes nothing."""
    if await _read_checked(control, store, role) is None:
        raise _missing(store, role)


async def check_store(
    control: ControlPlane, store: ObjectStore, role: StoreRole = StoreRole.BLOCKS
) -> None:
    """Raise if the store is another cluster's, or should have a marker and has none.

    For programs that run without a broker: no store has a marker until the first broker has
    started. A store that is not mounted, or whose prefix is mistyped, has none either. There, all
    blocks would seem to be lost, and no reader would find new ones.
    """
    if await _read_checked(control, store, role) is None:
        cluster = await control.identity.cluster()
        if cluster.generation:
            raise _missing(store, role)


async def check_segments(control: ControlPlane, store: ObjectStore, own: ObjectStore) -> None:
    """Raise unless `own` is the store in which brokers look for segments. Changes nothing."""
    cluster = await control.identity.cluster()
    if not cluster.generation:
        return
    check_noted(cluster.segments_apart, store, own)
    if own is not store:
        await check_claim(control, own, StoreRole.SEGMENTS)
    if cluster.segments_apart is None:
        await check_holds_segments(control, own)


def _missing(store: ObjectStore, role: StoreRole) -> MarkerMissingError:
    return marker_missing(store, _SETTINGS[role])


async def _read_checked(
    control: ControlPlane, store: ObjectStore, role: StoreRole
) -> tuple[StoreMarker, str] | None:
    """Return the marker with its ETag if it is the cluster's. None if there is no marker."""
    for _ in range(_ATTEMPTS):
        found = await read_marker(store)
        if found is None:
            return None
        try:
            check_marker(found[0], await control.identity.cluster(), role)
        except StoreSetBackError:
            # Its claim may have been the newest when it was read.
            again = await read_marker(store)
            if again is None or again[1] == found[1]:
                raise
        else:
            return found
    raise _contended(store)


async def _create(control: ControlPlane, store: ObjectStore, role: StoreRole) -> bool:
    """Write a first marker. False if another program was faster."""
    try:
        await _put(store, await control.identity.first_claim(role), role, Create())
    except ObjectExistsError:
        return False
    return True


async def _put(store: ObjectStore, cluster: Cluster, role: StoreRole, mode: PutMode) -> None:
    marker = StoreMarker(
        cluster_id=cluster.cluster_id,
        generation=cluster.generation,
        store_id=cluster.id_of(role),
        claim_id=UUID(cluster.claims_on(role)[-1]),
    )
    await store.put(MARKER_KEY, [encode_marker(marker)], mode=mode)


async def _write_next(control: ControlPlane, store: ObjectStore, role: StoreRole) -> Cluster:
    for _ in range(_ATTEMPTS):
        try:
            found = await _read_checked(control, store, role)
        except ControlPlaneBehindError as behind:
            # For the brokers that were running at the restore: they still write, and give out ids.
            await control.identity.halt(str(behind))
            raise
        if found is None:
            raise _missing(store, role)
        cluster = await control.identity.next_claim(role, found[0].claim, found[0].store_id)
        if cluster is None:
            continue
        try:
            await _put(store, cluster, role, Replace(etag=found[1]))
        except (ObjectChangedError, ObjectNotFoundError):
            continue
        return cluster
    raise _contended(store)


def _contended(store: ObjectStore) -> MarkerContendedError:
    return MarkerContendedError(
        f"{MARKER_KEY} in {store.url} changed {_ATTEMPTS} times while it was being claimed: "
        "try again; if it stays so, the store does not keep conditional puts"
    )
