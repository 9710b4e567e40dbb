"""A store that counts and times its calls.

Requests and bytes are counted by the inner store if it reports them. Otherwise a call is one
request, and carries the bytes of its arguments or of its result.
"""

from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

from stratalog.clock import Clock
from stratalog.metrics import (
    OBJECT_BYTES,
    OBJECT_ERRORS,
    OBJECT_REQUESTS,
    OBJECT_SECONDS,
    Metrics,
)
from stratalog.objects.store import (
    Buffer,
    ObjectInfo,
    ObjectStore,
    Overwrite,
    PutMode,
    Range,
    StoredObject,
)
from stratalog.objects.traffic_counts import TellsTraffic
from stratalog.objects.wrapped import WrappedStore

T = TypeVar("T")


class MeteredStore(WrappedStore):
    def __init__(self, inner: ObjectStore, *, metrics: Metrics, clock: Clock) -> None:
        super().__init__(inner)
        self._clock = clock
        self._requests = metrics.counter(OBJECT_REQUESTS)
        self._errors = metrics.counter(OBJECT_ERRORS)
        self._bytes = metrics.counter(OBJECT_BYTES)
        self._seconds = metrics.histogram(OBJECT_SECONDS)
        # Looking up a label takes as long as a small read.
        self._requests_of = cache(self._requests.labels)
        self._bytes_of = cache(self._bytes.labels)
        self._seconds_of = cache(self._seconds.labels)
        self._is_told = isinstance(inner, TellsTraffic)
        if isinstance(inner, TellsTraffic):
            inner.count_with(self._count)

    async def put(
        self,
        key: str,
        parts: Sequence[Buffer],
        *,
        mode: PutMode = Overwrite(),  # noqa: B008 - immutable
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        etag = await super().put(key, parts, mode=mode, metadata=metadata)
        self._carried("put", sum(len(part) for part in parts))
        return etag

    async def put_stream(self, key: str, parts: AsyncIterable[Buffer]) -> int:
        """Put a stream. The measured time includes the time of the stream's maker."""
        size_bytes = await super().put_stream(key, parts)
        self._carried("put_stream", size_bytes)
        return size_bytes

    async def get(self, key: str) -> StoredObject:
        stored = await super().get(key)
        self._carried("get", len(stored.data))
        return stored

    async def get_ranges(
        self,
        key: str,
        ranges: Sequence[Range],
        *,
        into: Sequence[memoryview] | None = None,
        mapped: bool = False,
    ) -> list[Buffer]:
        answers = await super().get_ranges(key, ranges, into=into, mapped=mapped)
        self._carried("get_ranges", sum(len(answer) for answer in answers))
        return answers

    async def list(
        self, prefix: str, *, start_after: str | None = None
    ) -> AsyncIterator[ObjectInfo]:
        """List keys. The measured time ends with the last key, and includes the consumer's time."""
        with self._measured("list"):
            async for info in self._inner.list(prefix, start_after=start_after):
                yield info

    async def _around(self, operation: str, key: str, call: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002
        with self._measured(operation):
            return await call()

    def _count(self, operation: str, *, requests: int = 0, size_bytes: int = 0) -> None:
        self._requests_of(operation).inc(requests)
        if size_bytes:
            self._bytes_of(operation).inc(size_bytes)

    def _carried(self, operation: str, size_bytes: int) -> None:
        if not self._is_told:
            self._count(operation, size_bytes=size_bytes)

    @contextmanager
    def _measured(self, operation: str) -> Iterator[None]:
        if not self._is_told:
            self._count(operation, requests=1)
        started = self._clock.monotonic()
        try:
            yield
        except Exception as error:
            self._errors.labels(operation, type(error).__name__).inc()
            raise
        finally:
            self._seconds_of(operation).observe(self._clock.monotonic() - started)
