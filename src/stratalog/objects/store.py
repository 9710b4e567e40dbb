"""The object store as every other room sees it: one interface, opened by URL.

Guarantees that each implementation gives and `tests/contract/test_objects.py` checks:

- A key holds either nothing or one whole object. Readers never see a part of a put.
- When `put` returns, the object is durable.
- `put` in mode CREATE has exactly one winner, however many race. A caller that lost the
  reply and repeats its put learns if the existing object is its own: the store compares a write id,
  and a repeated put of the same object is a success.
- `delete` of a key that is not there is a success.
"""

from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwrite:
    """Put whatever is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Put only if nothing is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace:
    """Put only if the version that is there has this ETag."""

    etag: str


PutMode: TypeAlias = Overwrite | Create | Replace


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    key: str
    size_bytes: int
    modified_ms: int
    etag: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    """User metadata. Filled by `head` and `get`, empty in listings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    info: ObjectInfo
    data: Buffer


class Range(tuple[int, int]):
    """A byte range `[start, end)`."""

    __slots__ = ()

    def __new__(cls, start: int, end: int) -> "Range":
        if not 0 <= start < end:
            raise ValueError(f"a byte range needs 0 <= start < end, not [{start}, {end})")
        return super().__new__(cls, (start, end))

    @property
    def start(self) -> int:
        return self[0]

    @property
    def end(self) -> int:
        return self[1]


class ObjectStore(Protocol):
    @property
    def url(self) -> str:
        """The address without any secret in it, for people."""

    async def put(
        self,
        key: str,
        parts: Sequence[Buffer],
        *,
        mode: PutMode = Overwrite(),
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Store the concatenation of `parts` durably and return its ETag."""

    async def put_stream(self, key: str, parts: AsyncIterable[Buffer]) -> int:
        """Store the buffers of `parts` durably, over any existing object; return the size.

        For objects too large to be held in memory: parts of a bounded size go to the store in
        parallel while more are being made. Buffers must not be changed once they are yielded.
        Readers see the whole object or the previous one; if `parts` raises, nothing changes.
        Once a cancellation is through, nothing is under way any more: the object is there whole
        or not at all. `parts` is never asked from another task than the caller's.
        """

    async def get(self, key: str) -> StoredObject: ...

    async def head(self, key: str) -> ObjectInfo: ...

    async def get_ranges(
        self,
        key: str,
        ranges: Sequence[Range],
        *,
        into: Sequence[memoryview] | None = None,
        mapped: bool = False,
    ) -> list[Buffer]:
        """Read several byte ranges. Neighbours are coalesced into fewer requests.

        Every range must lie inside the object: a short answer is a `DamagedError`. With `into`
        the bytes are put there, one view of the right size per range, and those are the answer.
        With `mapped` they are only to be looked at, and soon: a store of files answers with the
        files' own pages where it can, which takes no copy and no memory. Others answer as ever.
        """

    def list(self, prefix: str, *, start_after: str | None = None) -> AsyncIterator[ObjectInfo]:
        """All objects whose key starts with `prefix`, in key order."""

    async def copy(self, source: str, target: str, *, mode: PutMode = Overwrite()) -> None: ...

    async def delete(self, keys: Sequence[str]) -> None: ...

    async def close(self) -> None: ...
