"""A store that repeats what may be repeated."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from stratalog.clock import Clock
from stratalog.errors import RetriableError
from stratalog.ids import Entropy
from stratalog.objects.store import (
    Buffer,
    ObjectInfo,
    ObjectStore,
    Overwrite,
    PutMode,
)
from stratalog.objects.wrapped import WrappedStore
from stratalog.objects.write_id import with_write_id

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how patiently to repeat.

    The defaults give up after some three seconds: rooms above have their own, longer patience,
    and need to hear of trouble while they can still tell their clients.
    """

    attempts: int = 5
    first_delay_seconds: float = 0.1
    max_delay_seconds: float = 2.0

    def delay_seconds(self, failures: int, entropy: Entropy) -> float:
        """Doubling from the first delay, halved at random so that many clients spread out."""
        full = min(self.max_delay_seconds, self.first_delay_seconds * 2.0 ** (failures - 1))
        return full * (0.5 + entropy(1)[0] / 510)


class RetryingStore(WrappedStore):
    """Repeats calls that failed with a `RetriableError`.

    A conditional put gets its write id here, once, so that every repetition carries the same one
    and the inner store can tell our own object from somebody else's.
    """

    def __init__(
        self, inner: ObjectStore, *, clock: Clock, entropy: Entropy, policy: RetryPolicy
    ) -> None:
        super().__init__(inner)
        self._clock = clock
        self._entropy = entropy
        self._policy = policy

    async def put(
        self,
        key: str,
        parts: Sequence[Buffer],
        *,
        mode: PutMode = Overwrite(),  # noqa: B008 - immutable
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        marked = with_write_id(metadata or {}, mode, self._entropy)
        return await super().put(key, parts, mode=mode, metadata=marked)

    async def put_stream(self, key: str, parts: AsyncIterable[Buffer]) -> int:
        """Not repeated: what was yielded is gone. The store itself repeats a stream's requests."""
        return await self._inner.put_stream(key, parts)

    async def copy(self, source: str, target: str, *, mode: PutMode = Overwrite()) -> None:  # noqa: B008
        """A conditional copy is a read and a put, because a put can be recognised afterwards."""
        if isinstance(mode, Overwrite):
            await super().copy(source, target, mode=mode)
            return
        stored = await self.get(source)
        await self.put(target, [stored.data], mode=mode, metadata=stored.info.metadata)

    async def list(
        self, prefix: str, *, start_after: str | None = None
    ) -> AsyncIterator[ObjectInfo]:
        """A listing that breaks off goes on after the last key that it gave."""
        failures = 0
        while True:
            try:
                async for info in self._inner.list(prefix, start_after=start_after):
                    yield info
                    start_after, failures = info.key, 0
                return
            except RetriableError:
                failures += 1
                if failures >= self._policy.attempts:
                    raise
                await self._wait(failures)

    async def _around(self, operation: str, key: str, call: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002
        failures = 0
        while True:
            try:
                return await call()
            except RetriableError:
                failures += 1
                if failures >= self._policy.attempts:
                    raise
                await self._wait(failures)

    async def _wait(self, failures: int) -> None:
        await self._clock.sleep(self._policy.delay_seconds(failures, self._entropy))
