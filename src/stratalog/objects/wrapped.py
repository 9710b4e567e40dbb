"""A store around another one, on which the stores that add something are built."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from stratalog.objects.store import (
    Buffer,
    ObjectInfo,
    ObjectStore,
    Overwrite,
    PutMode,
    Range,
    StoredObject,
)

T = TypeVar("T")


class WrappedStore:
    """Passes everything on. Whatever returns one answer does so through `_around`."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    async def _around(
        self,
        operation: str,  # noqa: ARG002 - for those who override this
        key: str,  # noqa: ARG002
        call: Callable[[], Awaitable[T]],
    ) -> T:
        return await call()

    @property
    def url(self) -> str:
        return self._inner.url

    async def put(
        self,
        key: str,
        parts: Sequence[Buffer],
        *,
        mode: PutMode = Overwrite(),  # noqa: B008 - immutable
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        return await self._around(
            "put", key, lambda: self._inner.put(key, parts, mode=mode, metadata=metadata)
        )

    async def put_stream(self, key: str, parts: AsyncIterable[Buffer]) -> int:
        return await self._around("put_stream", key, lambda: self._inner.put_stream(key, parts))

    async def get(self, key: str) -> StoredObject:
        return await self._around("get", key, lambda: self._inner.get(key))

    async def head(self, key: str) -> ObjectInfo:
        return await self._around("head", key, lambda: self._inner.head(key))

    async def get_ranges(
        self,
        key: str,
        ranges: Sequence[Range],
        *,
        into: Sequence[memoryview] | None = None,
        mapped: bool = False,
    ) -> list[Buffer]:
        return await self._around(
            "get_ranges",
            key,
            lambda: self._inner.get_ranges(key, ranges, into=into, mapped=mapped),
        )

    def list(self, prefix: str, *, start_after: str | None = None) -> AsyncIterator[ObjectInfo]:
        return self._inner.list(prefix, start_after=start_after)

    async def copy(self, source: str, target: str, *, mode: PutMode = Overwrite()) -> None:  # noqa: B008
        await self._around("copy", target, lambda: self._inner.copy(source, target, mode=mode))

    async def delete(self, keys: Sequence[str]) -> None:
        first = keys[0] if keys else ""
        await self._around("delete", first, lambda: self._inner.delete(keys))

    async def close(self) -> None:
        await self._inner.close()
