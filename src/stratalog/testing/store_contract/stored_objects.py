"""Reads that the tests of a store share."""

from stratalog.objects import ObjectStore


async def read(store: ObjectStore, key: str) -> bytes:
    return bytes((await store.get(key)).data)


async def keys(store: ObjectStore, prefix: str = "", start_after: str | None = None) -> list[str]:
    return [info.key async for info in store.list(prefix, start_after=start_after)]
