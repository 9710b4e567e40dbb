"""A store that goes wrong on purpose: an instrument for tests and simulations."""

from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from enum import Enum, auto
from random import Random  # noqa: TID251 - seeded
from typing import Protocol, TypeVar

from stratalog.clock import Clock
from stratalog.objects.errors import ShortReadError, StoreUnavailableError
from stratalog.objects.store import (
    Buffer,
    ObjectInfo,
    ObjectStore,
    Overwrite,
    PutMode,
    Range,
    StoredObject,
)
from stratalog.objects.wrapped import WrappedStore

T = TypeVar("T")


class Fault(Enum):
    UNAVAILABLE = auto()
    """The store answers 503 and has done nothing."""
    LOST_REPLY = auto()
    """The store has done it, and the answer never arrives."""
    SLOW = auto()
    """The store does it, late."""
    SHORT_READ = auto()
    """A read breaks off in the middle, and is noticed."""
    CORRUPT_READ = auto()
    """A read answers the right number of bytes, one of them wrong. Elsewhere like no fault."""
    TORN_PUT = auto()
    """The store keeps half of a put and calls it done, as no store should."""
    BROKEN_STREAM = auto()
    """The store fails after the first part of a stream, and keeps nothing."""


class FaultPlan(Protocol):
    def next(self, operation: str, key: str) -> Fault | None:
        """The fault that befalls this call. Asked once per call."""


class ScriptedFaults:
    """Faults in a given order, each befalling the next call of its operation."""

    def __init__(self, script: Sequence[tuple[str, Fault]]) -> None:
        self.remaining = [*script]

    def next(self, operation: str, key: str) -> Fault | None:  # noqa: ARG002
        for index, (wanted, fault) in enumerate(self.remaining):
            if wanted == operation:
                del self.remaining[index]
                return fault
        return None


class RandomFaults:
    """Faults by chance. The same seed and the same calls give the same faults."""

    def __init__(
        self,
        seed: int,
        chances: Mapping[Fault, float],
        operations: Collection[str] | None = None,
    ) -> None:
        self._random = Random(seed)
        self._chances = chances
        self._operations = operations

    def next(self, operation: str, key: str) -> Fault | None:  # noqa: ARG002
        if self._operations is not None and operation not in self._operations:
            return None
        drawn = self._random.random()
        for fault, chance in self._chances.items():
            if drawn < chance:
                return fault
            drawn -= chance
        return None


class FaultyStore(WrappedStore):
    def __init__(
        self, inner: ObjectStore, plan: FaultPlan, *, clock: Clock, slow_seconds: float = 1.0
    ) -> None:
        super().__init__(inner)
        self._plan = plan
        self._clock = clock
        self._slow_seconds = slow_seconds

    async def put(
        self,
        key: str,
        parts: Sequence[Buffer],
        *,
        mode: PutMode = Overwrite(),  # noqa: B008 - immutable
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        fault = await self._before("put", key)
        if fault is Fault.TORN_PUT:
            whole = b"".join(parts)
            parts = [whole[: len(whole) // 2]]
        etag = await self._inner.put(key, parts, mode=mode, metadata=metadata)
        _after(fault, "put", key)
        return etag

    async def put_stream(self, key: str, parts: AsyncIterable[Buffer]) -> int:
        fault = await self._before("put_stream", key)
        if fault is Fault.BROKEN_STREAM:
            parts = _broken_off(parts, key)
        if fault is Fault.TORN_PUT:
            parts = _halved(parts)
        size_bytes = await self._inner.put_stream(key, parts)
        _after(fault, "put_stream", key)
        return size_bytes

    async def get(self, key: str) -> StoredObject:
        fault = await self._before("get", key)
        stored = await self._inner.get(key)
        _after(fault, "get", key)
        return StoredObject(info=stored.info, data=_spoil(stored.data, fault, key))

    async def get_ranges(
        self,
        key: str,
        ranges: Sequence[Range],
        *,
        into: Sequence[memoryview] | None = None,
        mapped: bool = False,
    ) -> list[Buffer]:
        fault = await self._before("get_ranges", key)
        answers = await self._inner.get_ranges(key, ranges, into=into, mapped=mapped)
        _after(fault, "get_ranges", key)
        return [*answers[:-1], _spoil(answers[-1], fault, key)] if answers else answers

    async def list(
        self, prefix: str, *, start_after: str | None = None
    ) -> AsyncIterator[ObjectInfo]:
        """A lost reply breaks a listing off after its first key."""
        fault = await self._before("list", prefix)
        async for info in self._inner.list(prefix, start_after=start_after):
            yield info
            _after(fault, "list", prefix)

    async def _around(self, operation: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        fault = await self._before(operation, key)
        answer = await call()
        _after(fault, operation, key)
        return answer

    async def _before(self, operation: str, key: str) -> Fault | None:
        fault = self._plan.next(operation, key)
        if fault is Fault.SLOW:
            await self._clock.sleep(self._slow_seconds)
        if fault is Fault.UNAVAILABLE:
            raise StoreUnavailableError(f"{operation} {key!r}: made to fail")
        return fault


def _after(fault: Fault | None, operation: str, key: str) -> None:
    if fault is Fault.LOST_REPLY:
        raise StoreUnavailableError(f"{operation} {key!r}: made to lose its reply")


async def _broken_off(parts: AsyncIterable[Buffer], key: str) -> AsyncIterator[Buffer]:
    async for part in parts:
        yield part
        break
    raise StoreUnavailableError(f"put_stream {key!r}: made to break off")


async def _halved(parts: AsyncIterable[Buffer]) -> AsyncIterator[Buffer]:
    whole = b"".join([part async for part in parts])
    yield whole[: len(whole) // 2]


def _spoil(data: Buffer, fault: Fault | None, key: str) -> Buffer:
    if fault is Fault.SHORT_READ:
        raise ShortReadError(f"get {key!r}: made to break off after {len(data) // 2} bytes")
    if fault is not Fault.CORRUPT_READ or not len(data):
        return data
    spoiled = bytearray(data)
    spoiled[len(spoiled) // 2] ^= 0xFF
    return spoiled
