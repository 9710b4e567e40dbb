"""The remote tier of a cluster, as checks need it: the stores and keys of its segments."""

from dataclasses import dataclass

from stratalog.checks.errors import NoOtherStoreError
from stratalog.objects.store import ObjectStore
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.stores import SegmentStores
from stratalog.settings import RemoteSettings

SEGMENT_PREFIX = RemoteSettings().prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTier:
    stores: SegmentStores
    keys: KeyRing
    prefix: str = SEGMENT_PREFIX
    """The prefix of the object keys of the cluster's own segments."""


def beside_blocks(store: ObjectStore) -> SegmentStores:
    """Return the stores of segments that all lie in the store of the blocks."""
    return SegmentStores(store, _refuse)


def _refuse(url: str) -> ObjectStore:
    raise NoOtherStoreError(f"a segment lies in {url}, which was not given here")
