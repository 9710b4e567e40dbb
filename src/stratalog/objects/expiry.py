"""Deleting objects of a prefix by their age."""

from stratalog.objects.store import ObjectStore

_DELETED_AT_ONCE = 1000


async def delete_older(store: ObjectStore, prefix: str, oldest_ms: int) -> int:
    """Delete the objects that were not modified since, and return their number."""
    old = [info.key async for info in store.list(prefix) if info.modified_ms <= oldest_ms]
    for first in range(0, len(old), _DELETED_AT_ONCE):
        await store.delete(old[first : first + _DELETED_AT_ONCE])
    return len(old)
