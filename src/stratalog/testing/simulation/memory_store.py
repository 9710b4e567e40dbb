"""An object store in a dictionary, without threads: the far side of a simulated network."""

from bisect import bisect_right
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from stratalog.clock import Clock
from stratalog.objects.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    ShortReadError,
)
from stratalog.objects.keys import check_key, check_prefix
from stratalog.objects.store import (
    Buffer,
    Create,
    ObjectInfo,
    Overwrite,
    PutMode,
    Range,
    Replace,
    StoredObject,
)
from stratalog.objects.write_id import WRITE_ID, without_write_id


@dataclass(frozen=True, slots=True)
class _Version:
    data: bytes
    modified_ms: int
    etag: str
    metadata: Mapping[str, str]


class MemoryStore:
    def __init__(self, clock: Clock, url: str = "simulated://store") -> None:
        self._clock = clock
        self._url = url
        self._versions: dict[str, _Version] = {}
        self._number = 0

    @property
    def url(self) -> str:
        return self._url

    def holds(self, key: str) -> bool:
        return key in self._versions

    def copy_of_now(self) -> "MemoryStore":
        """Another store, with the objects that this one has now."""
        other = MemoryStore(self._clock, self._url)
        other._versions, other._number = dict(self._versions), self._number
        return other

    async def put(
        self,
        key: str,
        parts: Sequence[Buffer],
        *,
        mode: PutMode = Overwrite(),  # noqa: B008 - immutable
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        check_key(key)
        metadata = metadata or {}
        there = self._versions.get(key)
        if there is not None and _is_own(there, metadata):
            return there.etag
        if isinstance(mode, Create) and there is not None:
            raise ObjectExistsError(f"{key!r} exists")
        if isinstance(mode, Replace):
            if there is None:
                raise ObjectNotFoundError(f"{key!r} does not exist")
            if there.etag != mode.etag:
                raise ObjectChangedError(f"{key!r} has changed")
        self._number += 1
        version = _Version(b"".join(parts), self._clock.now_ms(), f"{self._number}", metadata)
        self._versions[key] = version
        return version.etag

    async def put_stream(self, key: str, parts: AsyncIterable[Buffer]) -> int:
        data = [bytes(part) async for part in parts]
        await self.put(key, data)
        return sum(map(len, data))

    async def get(self, key: str) -> StoredObject:
        return StoredObject(info=await self.head(key), data=self._version(key).data)

    async def head(self, key: str) -> ObjectInfo:
        return self._info(key, self._version(key), with_metadata=True)

    async def get_ranges(
        self,
        key: str,
        ranges: Sequence[Range],
        *,
        into: Sequence[memoryview] | None = None,
        mapped: bool = False,  # noqa: ARG002 - all bytes are in memory
    ) -> list[Buffer]:
        data = self._version(key).data
        if any(wanted.end > len(data) for wanted in ranges):
            raise ShortReadError(f"{key!r} has {len(data)} bytes")
        if into is None:
            return [data[start:end] for start, end in ranges]
        for view, (start, end) in zip(into, ranges, strict=True):
            view[:] = data[start:end]
        return [*into]

    async def list(
        self, prefix: str, *, start_after: str | None = None
    ) -> AsyncIterator[ObjectInfo]:
        check_prefix(prefix)
        keys = sorted(key for key in self._versions if key.startswith(prefix))
        for key in keys[bisect_right(keys, start_after) if start_after else 0 :]:
            version = self._versions.get(key)
            if version is not None:
                yield self._info(key, version)

    async def copy(self, source: str, target: str, *, mode: PutMode = Overwrite()) -> None:  # noqa: B008
        await self.put(target, [self._version(source).data], mode=mode)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._versions.pop(key, None)

    async def close(self) -> None:
        """Nothing is open."""

    def _version(self, key: str) -> _Version:
        check_key(key)
        if key not in self._versions:
            raise ObjectNotFoundError(f"{key!r} does not exist")
        return self._versions[key]

    @staticmethod
    def _info(key: str, version: _Version, *, with_metadata: bool = False) -> ObjectInfo:
        return ObjectInfo(
            key=key,
            size_bytes=len(version.data),
            modified_ms=version.modified_ms,
            etag=version.etag,
            metadata=without_write_id(version.metadata) if with_metadata else {},
        )


def _is_own(there: _Version, metadata: Mapping[str, str]) -> bool:
    """A repeated conditional put finds its own object."""
    return WRITE_ID in metadata and there.metadata.get(WRITE_ID) == metadata[WRITE_ID]
