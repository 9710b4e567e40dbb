"""The object stores of segments: the cluster's own, and the stores of adopted topics."""

from collections.abc import Callable

from stratalog.objects.store import ObjectStore


class SegmentStores:
    """Opens each other store once, at its first use."""

    def __init__(self, own: ObjectStore, open_other: Callable[[str], ObjectStore]) -> None:
        self._own = own
        self._open_other = open_other
        self._others: dict[str, ObjectStore] = {}

    @property
    def own(self) -> ObjectStore:
        return self._own

    def of(self, store_url: str) -> ObjectStore:
        """Return the store with a segment's `store_url`. Empty means the cluster's own."""
        if not store_url:
            return self._own
        store = self._others.get(store_url)
        if store is None:
            store = self._others[store_url] = self._open_other(store_url)
        return store

    async def close(self) -> None:
        """Close the stores that were opened here. The caller closes the cluster's own store."""
        others, self._others = self._others, {}
        for store in others.values():
            await store.close()
