"""A store that counts and times its calls."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager

from prometheus_client import Counter, Histogram

from stratalog.clock import Clock
from stratalog.metrics import Metrics
from stratalog.objects.store import (
    Buffer,
    ObjectInfo,
    ObjectStore,
    Overwrite,
    PutMode,
    Range,
    StoredObject,
)

_SECONDS_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class MeteredStore:
    def __init__(self, inner: ObjectStore, *, metrics: Metrics, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        registry = metrics.registry
        self._requests = Counter(
            "stratalog_objects_requests",
            "Calls of the object store, repeated ones included.",
            ["operation"],
            registry=registry,
        )
        self._errors = Counter(
            "stratalog_objects_errors",
            "Calls of the object store that failed.",
            ["operation", "error"],
            registry=registry,
        )
        self._bytes = Counter(
            "stratalog_objects_bytes",
            "Bytes of object data written and read.",
            ["operation"],
            registry=registry,
        )
        self._seconds = Histogram(
            "stratalog_objects_seconds",
            "How long calls of the object store took.",
            ["operation"],
            buckets=_SECONDS_BUCKETS,
            registry=registry,
        )

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
        with self._measured("put"):
            etag = await self._inner.put(key, parts, mode=mode, metadata=metadata)
        self._bytes.labels("put").inc(sum(len(part) for part in parts))
        return etag

    async def get(self, key: str) -> StoredObject:
        with self._measured("get"):
            stored = await self._inner.get(key)
        self._bytes.labels("get").inc(len(stored.data))
        return stored

    async def head(self, key: str) -> ObjectInfo:
        with self._measured("head"):
            return await self._inner.head(key)

    async def get_ranges(self, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        with self._measured("get_ranges"):
            answers = await self._inner.get_ranges(key, ranges)
        self._bytes.labels("get_ranges").inc(sum(len(answer) for answer in answers))
        return answers

    async def list(
        self, prefix: str, *, start_after: str | None = None
    ) -> AsyncIterator[ObjectInfo]:
        """Timed from the first key to the last, the consumer's own time included."""
        with self._measured("list"):
            async for info in self._inner.list(prefix, start_after=start_after):
                yield info

    async def copy(self, source: str, target: str, *, mode: PutMode = Overwrite()) -> None:  # noqa: B008
        with self._measured("copy"):
            await self._inner.copy(source, target, mode=mode)

    async def delete(self, keys: Sequence[str]) -> None:
        with self._measured("delete"):
            await self._inner.delete(keys)

    async def close(self) -> None:
        await self._inner.close()

    @contextmanager
    def _measured(self, operation: str) -> Iterator[None]:
        self._requests.labels(operation).inc()
        started = self._clock.monotonic()
        try:
            yield
        except Exception as error:
            self._errors.labels(operation, type(error).__name__).inc()
            raise
        finally:
            self._seconds.labels(operation).observe(self._clock.monotonic() - started)
