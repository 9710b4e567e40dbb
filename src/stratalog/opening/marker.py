"""The marker: the object `stratalog.json`, which says whose store this is.

The marker names the cluster and its generation. The control plane raises the generation at every
start of a broker and at every sweep, and the marker follows. A control plane that was restored from
a backup is therefore behind the marker. That is noticed here, before the sweeper takes objects that
the restored control plane does not know for garbage.
"""

import json
from dataclasses import dataclass
from uuid import UUID

from stratalog.control.identity.model import Cluster
from stratalog.errors import MALFORMED_JSON
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import ObjectStore
from stratalog.opening.errors import (
    ControlPlaneBehindError,
    MarkerDamagedError,
    MarkerMissingError,
    WrongStoreError,
)

MARKER_KEY = "stratalog.json"
MARKER_FORMAT = 1


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
    except MALFORMED_JSON as error:
        raise MarkerDamagedError(
            f"{MARKER_KEY} is not a marker ({error!r}): if this store is surely this cluster's, "
            "delete that object and run `stratalog store claim`"
        ) from error
    if marker_format > MARKER_FORMAT:
        raise WrongStoreError(
            f"{MARKER_KEY} has format {marker_format}, this version knows {MARKER_FORMAT}: "
            "upgrade Stratalog"
        )
    return marker


async def read_marker(store: ObjectStore) -> tuple[StoreMarker, str] | None:
    """Return the marker and its ETag, or None if the store has none."""
    try:
        found = await store.get(MARKER_KEY)
    except ObjectNotFoundError:
        return None
    return parse_marker(found.data), found.info.etag


def check_owner(marker: StoreMarker, cluster: Cluster) -> None:
    """Raise if the store is another cluster's."""
    if marker.cluster_id != cluster.cluster_id:
        raise WrongStoreError(
            f"the object store belongs to cluster {marker.cluster_id}, the control plane to "
            f"{cluster.cluster_id}: point storage.objects or storage.control to the right place, "
            "or give this cluster a prefix of its own"
        )


def check_marker(marker: StoreMarker, cluster: Cluster) -> None:
    """Raise unless the control plane may change this store.

    Read the marker before the cluster. A claim raises the generation in the control plane first,
    so that in this order a marker that is ahead cannot be a race.
    """
    check_owner(marker, cluster)
    if marker.generation > cluster.generation:
        raise ControlPlaneBehindError(
            f"the control plane is older than the store: restored from a backup? It is at "
            f"generation {cluster.generation}, the store has seen {marker.generation}, and "
            "records that were acknowledged between the two would be lost. Restore a newer backup;"
            " or, to go on without those records, stop all brokers and run"
            " `stratalog control accept`"
        )


def marker_missing(store: ObjectStore, setting: str = "storage.objects") -> MarkerMissingError:
    return MarkerMissingError(
        f"{store.url} has no {MARKER_KEY}, so it is not known to be this cluster's store: if it is "
        f"a folder, is it mounted? Else check {setting} for a typo. If this surely is the store, "
        "run `stratalog store claim` with the same settings"
    )
