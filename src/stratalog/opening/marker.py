"""The marker: the object `stratalog.json`, which says whose store this is.

The marker names the cluster and its generation. The control plane raises the generation at every
start of a broker and at every sweep, and the marker follows. A control plane that was restored from
a backup is therefore behind the marker. That is noticed here, before the sweeper takes objects that
the restored control plane does not know for garbage.

It also names the store, by a random id that copies share, and the claim that wrote it. The control
plane knows the ids of its stores and the newest claims on each. So it recognises a store that was
claimed by mistake, a copy from before, and a store that was set back.
"""

import json
from dataclasses import dataclass
from uuid import UUID

from stratalog.control.identity.model import UNNAMED, Cluster, StoreRole
from stratalog.errors import MALFORMED_JSON
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import ObjectStore
from stratalog.opening.errors import (
    ControlPlaneBehindError,
    MarkerDamagedError,
    MarkerMissingError,
    StoreSetBackError,
    WrongStoreError,
)

MARKER_KEY = "stratalog.json"
MARKER_FORMAT = 2
_TAKE_OVER = (
    "If this surely shall be the store from now on, stop all brokers, delete its stratalog.json and"
    " run `stratalog store claim`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreMarker:
    cluster_id: UUID
    generation: int
    store_id: UUID | None = None
    """None in a marker of format 1."""
    claim_id: UUID | None = None

    @property
    def claim(self) -> str:
        """The claim as the control plane notes it."""
        return UNNAMED if self.claim_id is None else str(self.claim_id)


def encode_marker(marker: StoreMarker) -> bytes:
    fields = {
        "cluster_id": str(marker.cluster_id),
        "store_id": None if marker.store_id is None else str(marker.store_id),
        "claim_id": None if marker.claim_id is None else str(marker.claim_id),
        "generation": marker.generation,
        "format": MARKER_FORMAT,
    }
    return json.dumps(fields).encode() + b"\n"


def parse_marker(data: bytes | bytearray | memoryview) -> StoreMarker:
    try:
        fields = json.loads(bytes(data))
        marker_format = int(fields["format"])
        marker = StoreMarker(
            cluster_id=UUID(fields["cluster_id"]),
            generation=int(fields["generation"]),
            store_id=_optional_id(fields.get("store_id")),
            claim_id=_optional_id(fields.get("claim_id")),
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


def _optional_id(text: str | None) -> UUID | None:
    return None if text is None else UUID(text)


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


def check_store_id(marker: StoreMarker, cluster: Cluster, role: StoreRole) -> None:
    """Raise if the store is another one than the cluster has claimed for this role."""
    known = cluster.id_of(role)
    if marker.store_id is None or known == marker.store_id:
        return
    [other] = [one for one in StoreRole if one is not role]
    is_other = cluster.id_of(other) == marker.store_id
    if known is not None or is_other:
        found = f"the store of this cluster's {other.value}" if is_other else "of no known role"
        expected = "not noted yet" if known is None else known
        setting = "storage.objects" if role is StoreRole.BLOCKS else "remote.objects"
        raise WrongStoreError(
            f"the store with id {marker.store_id} is {found}, and the id of the store of this "
            f"cluster's {role.value} is {expected}: check {setting} for a typo. {_TAKE_OVER}"
        )


def check_marker(marker: StoreMarker, cluster: Cluster, role: StoreRole = StoreRole.BLOCKS) -> None:
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
    check_store_id(marker, cluster, role)
    # Without a known id, the cluster was last used by a version that noted no claims.
    if cluster.id_of(role) is not None and marker.claim not in cluster.claims_on(role):
        raise StoreSetBackError(
            f"the store {marker.store_id} is a copy from before, or was set back: its marker has "
            f"the claim {marker.claim} of generation {marker.generation}, and none of the newest "
            f"claims on the store of this cluster's {role.value}. Point the settings to the store "
            f"in use. {_TAKE_OVER}"
        )


def marker_missing(store: ObjectStore, setting: str = "storage.objects") -> MarkerMissingError:
    return MarkerMissingError(
        f"{store.url} has no {MARKER_KEY}, so it is not known to be this cluster's store: if it is "
        f"a folder, is it mounted? Else check {setting} for a typo. If this surely is the store, "
        "run `stratalog store claim` with the same settings"
    )
