"""A store that retries calls."""

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
from stratalog.retry import Backoff, retry

T = TypeVar("T")


_BACKOFF = Backoff(first_s=0.1, longest_s=2.0, spread=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The number of attempts and the pauses between them.

    The defaults give up after some three seconds: rooms above retry for longer, and must learn of
    trouble while they can still answer their clients.
    """

    attempts: int = 5
    backoff: Backoff = _BACKOFF


class RetryingStore(WrappedStore):
    """Repeats calls that failed with a `RetriableError`.

    A conditional put gets its write id here, once, so that every repetition carries the same one
    and the inner store can tell its own object from another writer's.
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
        """Call once: buffers cannot be yielded again. The store itself retries the requests."""
        return await self._inner.put_stream(key, parts)

    async def copy(self, source: str, target: str, *, mode: PutMode = Overwrite()) -> None:  # noqa: B008
        """Copy. A conditional copy is a read and a put, because a put can be recognised later."""
        if isinstance(mode, Overwrite):
            await super().copy(source, target, mode=mode)
            return
        stored = await self.get(source)
        await self.put(target, [stored.data], mode=mode, metadata=stored.info.metadata)

    async def list(
        self, prefix: str, *, start_after: str | None = None
    ) -> AsyncIterator[ObjectInfo]:
        """List keys. A listing that breaks off continues after its last key."""
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
                pause_s = self._policy.backoff.pause_s(failures, self._entropy)
                await self._clock.sleep(pause_s)

    async def _around(self, operation: str, key: str, call: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002
        return await retry(
            call,
            clock=self._clock,
            backoff=self._policy.backoff,
            attempts=self._policy.attempts,
            entropy=self._entropy,
        )
