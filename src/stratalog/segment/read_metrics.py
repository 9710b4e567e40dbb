"""The metrics of reads from segments."""

from stratalog.metrics import (
    SEGMENT_CACHE_HITS,
    SEGMENT_CACHE_MISSES,
    SEGMENT_READ_BYTES,
    SEGMENT_READ_REQUESTS,
    Metrics,
)


class ReadMetrics:
    """Counts by kind: `index`, `log` for reads that a reader waits for, `ahead` for reads ahead."""

    def __init__(self, metrics: Metrics) -> None:
        self._requests = metrics.counter(SEGMENT_READ_REQUESTS)
        self._bytes = metrics.counter(SEGMENT_READ_BYTES)
        self._hits = metrics.counter(SEGMENT_CACHE_HITS)
        self._misses = metrics.counter(SEGMENT_CACHE_MISSES)

    def request(self, kind: str, size_bytes: int) -> None:
        self._requests.labels(kind).inc()
        self._bytes.labels(kind).inc(size_bytes)

    def looked(self, kind: str, *, hits: int = 0, misses: int = 0) -> None:
        self._hits.labels(kind).inc(hits)
        self._misses.labels(kind).inc(misses)
