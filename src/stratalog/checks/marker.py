"""The object `stratalog.json`: which cluster a store belongs to, and how far it has come.

The control plane raises its generation at every broker start and every sweep, and the marker
follows. A control plane that was restored from a backup is therefore behind the marker, and is
noticed before it takes the objects that it has never heard of for garbage.
"""

import json
from dataclasses import dataclass
from uuid import UUID

from stratalog.control.model import Cluster
from stratalog.control.plane import ControlPlane
from stratalog.errors import CallError, DamagedError
from stratalog.objects.store import ObjectNotFoundError, ObjectStore

MARKER_KEY = "stratalog.json"
MARKER_FORMAT = 1


class MarkerDamagedError(DamagedError):
    """The store's marker cannot be read."""


class MarkerMissingError(CallError):
    """The store that was claimed has no marker any more."""


class WrongStoreError(CallError):
    """The store belongs to another cluster, or to a newer Stratalog."""


class ControlPlaneBehindError(CallError):
    """The store has seen a newer control plane than this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreMarker:
    cluster_id: UUID
    generation: int


def encode_marker(marker: StoreMarker) -> bytes:
    fields = {
        "cluster_id": str(marker.cluster_id),
        "generation": marker.generation,
        "format": MARKER_FORMAT,
    }
    return json.dumps(fields).encode() + b"\n"


def parse_marker(data: bytes | bytearray | memoryview) -> StoreMarker:
    try:
        fields = json.loads(bytes(data))
        marker_format = int(fields["format"])
        marker = StoreMarker(
            cluster_id=UUID(fields["cluster_id"]), generation=int(fields["generation"])
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MarkerDamagedError(
            f"{MARKER_KEY} is not a marker ({error!r}): if this store is surely this cluster's, "
            "delete that object and start again"
        ) from error
    if marker_format > MARKER_FORMAT:
        raise WrongStoreError(
            f"{MARKER_KEY} has format {marker_format}, this version knows {MARKER_FORMAT}: "
            "upgrade Stratalog"
        )
    return marker


async def read_marker(store: ObjectStore) -> tuple[StoreMarker, str] | None:
    """The marker and its ETag, or None if the store has none."""
    try:
        found = await store.get(MARKER_KEY)
    except ObjectNotFoundError:
        return None
    return parse_marker(found.data), found.info.etag


def check_marker(marker: StoreMarker, cluster: Cluster) -> None:
    """Raise unless the control plane may change this store.

    Read the marker before the cluster: the control plane always goes first, so that in this
    order a marker that is ahead cannot be a race.
    """
    if marker.cluster_id != cluster.cluster_id:
        raise WrongStoreError(
            f"the object store belongs to cluster {marker.cluster_id}, the control plane to "
            f"{cluster.cluster_id}: point storage.objects or storage.control to the right place, "
            "or give this cluster a prefix of its own"
        )
    if marker.generation > cluster.generation:
        raise ControlPlaneBehindError(
            f"the control plane is older than the store: restored from a backup? It is at "
            f"generation {cluster.generation}, the store has seen {marker.generation}, and what "
            "was written between would be deleted as garbage. Restore a newer backup; or, to go "
            f"on without what was written since, delete {MARKER_KEY} from the store"
        )


async def check_claim(
    control: ControlPlane, store: ObjectStore, *, setting: str = "storage.objects"
) -> None:
    """Raise unless the store is still this cluster's. Changes nothing."""
    found = await read_marker(store)
    if found is None:
        raise marker_missing(store, setting)
    check_marker(found[0], await control.cluster())


async def check_store(control: ControlPlane, store: ObjectStore) -> None:
    """The same for those who need no broker: until one has started, no store has a marker.

    A store that is not mounted, or whose prefix is mistyped, has none either. All blocks would
    seem to be lost there, and what is written there would be lost on all readers.
    """
    found = await read_marker(store)
    cluster = await control.cluster()
    if found is not None:
        check_marker(found[0], cluster)
    elif cluster.generation:
        raise marker_missing(store)


def marker_missing(store: ObjectStore, setting: str = "storage.objects") -> MarkerMissingError:
    return MarkerMissingError(
        f"{store.url} has no {MARKER_KEY} any more, so it may not be this cluster's store: check "
        f"{setting} and restart the broker, which writes the marker anew"
    )
