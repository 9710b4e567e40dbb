"""The remote tier of a cluster, as checks need it: the stores and keys of its segments."""

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
    """A segment lies in a store that the check cannot open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTier:
    stores: SegmentStores
    keys: KeyRing
    prefix: str = SEGMENT_PREFIX
    """The prefix of the object keys of the cluster's own segments."""


def beside_blocks(store: ObjectStore) -> SegmentStores:
    """Return the stores of segments that all lie in the store of the blocks."""
    return SegmentStores(store, _refuse)


@asynccontextmanager
async def open_remote_tier(
    settings: Settings, store: ObjectStore, clock: Clock
) -> AsyncIterator[RemoteTier]:
    """Open the remote tier of these settings. `store` holds the blocks."""
    storage, remote = settings.storage, settings.remote

    def open_other(url: str) -> ObjectStore:
        return open_other_store(url, storage, clock)

    own = store if remote.objects is None else open_other(remote.objects)
    stores = SegmentStores(own, open_other)
    try:
        # Without an active key: checks encrypt no segment that was not encrypted before.
        keys = KeyRing.load({}, remote.private_keys, None)
        yield RemoteTier(stores=stores, keys=keys, prefix=remote.prefix)
    finally:
        await stores.close()
        if own is not store:
            await own.close()


def _refuse(url: str) -> ObjectStore:
    raise NoOtherStoreError(f"a segment lies in {url}, which was not given here")
