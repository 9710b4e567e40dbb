"""What reading segments costs, counted."""

from prometheus_client import Counter

from stratalog.metrics import Metrics


class ReadMetrics:
    """`kind` is `index`, `log` for what a reader waits for, or `ahead` for what is read ahead."""

    def __init__(self, metrics: Metrics) -> None:
        registry = metrics.registry
        self._requests = Counter(
            "stratalog_segment_read_requests",
            "Ranges of segments' objects that were asked of the object store.",
            ["kind"],
            registry=registry,
        )
        self._bytes = Counter(
            "stratalog_segment_read_bytes",
            "Bytes of segments' objects read, as they are stored.",
            ["kind"],
            registry=registry,
        )
        self._hits = Counter(
            "stratalog_segment_cache_hits",
            "Indexes and chunks of segments that were in memory or on their way.",
            ["kind"],
            registry=registry,
        )
        self._misses = Counter(
            "stratalog_segment_cache_misses",
            "Indexes and chunks of segments that had to be read.",
            ["kind"],
            registry=registry,
        )

    def request(self, kind: str, size_bytes: int) -> None:
        self._requests.labels(kind).inc()
        self._bytes.labels(kind).inc(size_bytes)

    def looked(self, kind: str, *, hits: int = 0, misses: int = 0) -> None:
        self._hits.labels(kind).inc(hits)
        self._misses.labels(kind).inc(misses)
