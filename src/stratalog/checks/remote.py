"""The remote tier of a cluster, as checks need it: the stores of its segments, and their keys."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from stratalog.clock import Clock
from stratalog.errors import CallError
from stratalog.objects.store import ObjectStore
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.stores import SegmentStores, open_other_store
from stratalog.settings import RemoteSettings, Settings

SEGMENT_PREFIX = RemoteSettings().prefix


class NoOtherStoreError(CallError):
    """A segment lies in a store that was not given here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTier:
    stores: SegmentStores
    keys: KeyRing
    prefix: str = SEGMENT_PREFIX
    """Of the keys of the cluster's own segments."""


def beside_blocks(store: ObjectStore) -> SegmentStores:
    """Segments that all lie in the store that holds the blocks."""
    return SegmentStores(store, _refuse)


@asynccontextmanager
async def open_remote_tier(
    settings: Settings, store: ObjectStore, clock: Clock
) -> AsyncIterator[RemoteTier]:
    """The remote tier that the settings describe, beside the blocks in `store`."""
    storage, remote = settings.storage, settings.remote

    def open_other(url: str) -> ObjectStore:
        return open_other_store(url, storage, clock)

    own = store if remote.objects is None else open_other(remote.objects)
    stores = SegmentStores(own, open_other)
    try:
        # Nothing is encrypted here that was not before.
        keys = KeyRing.load({}, remote.private_keys, None)
        yield RemoteTier(stores=stores, keys=keys, prefix=remote.prefix)
    finally:
        await stores.close()
        if own is not store:
            await own.close()


def _refuse(url: str) -> ObjectStore:
    raise NoOtherStoreError(f"a segment lies in {url}, which was not given here")
