"""The catalogue of metrics, and the registry that holds their values.

Every metric is declared here once: its name, its meaning and its labels. `docs/metrics.md` is
written from this file by `make docs`. Rooms take a metric out of a registry by its declaration:

    committed = metrics.counter(BLOCKS_COMMITTED)
"""

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram


@dataclass(frozen=True)
class CounterSpec:
    """A number that only grows. The exported name ends in `_total`."""

    name: str
    documentation: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class HistogramSpec:
    """A distribution, exported as counts per bucket, a count and a sum."""

    name: str
    documentation: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = Histogram.DEFAULT_BUCKETS


REQUEST_SECONDS = HistogramSpec(
    "stratalog_request_seconds",
    "Seconds from the acceptance of a Kafka request to its response.",
    ("api",),
    (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0),
)
PARTITION_ERRORS = CounterSpec(
    "stratalog_partition_errors",
    "Partitions of Produce and Fetch requests that were answered with an error.",
    ("api", "error"),
)
FETCH_SESSIONS = CounterSpec(
    "stratalog_fetch_sessions",
    "Fetch sessions. `event` is `begun`, `ended`, `evicted` (for another one) or `refused` (no "
    "slot or no memory was free). Open are those begun, without those ended and evicted.",
    ("event",),
)

CONNECTIONS_REFUSED = CounterSpec(
    "stratalog_connections_refused",
    "Clients that got no connection. `limit` is `total`, `address` (too many from one) or "
    "`descriptors` (too few would be left for files and the database).",
    ("limit",),
)
CONNECTIONS_IDLE = CounterSpec(
    "stratalog_connections_idle",
    "Connections closed because nothing moved on them for `broker.connections_max_idle_ms`.",
)
HINTS_REFUSED = CounterSpec(
    "stratalog_hints_refused",
    "Datagrams on the port of hints that no broker of this cluster sent, or that came before.",
)

BLOCKS_SEALED = CounterSpec(
    "stratalog_blocks_sealed",
    "Blocks sealed. `reason` is `full`, `window` (it has ended), `early` (no other sender was "
    "expected in it, and the request was worth it) or `closing`.",
    ("reason",),
)
BLOCKS_COMMITTED = CounterSpec("stratalog_blocks_committed", "Blocks committed.")
BLOCK_BYTES = CounterSpec("stratalog_block_bytes", "Bytes of committed blocks.")
BLOCKS_FAILED = CounterSpec(
    "stratalog_blocks_failed", "Blocks that the writer gave up: upload or commit failed."
)
BLOCK_UPLOAD_SECONDS = HistogramSpec("stratalog_block_upload_seconds", "Seconds to upload a block.")
BLOCK_COMMIT_SECONDS = HistogramSpec(
    "stratalog_block_commit_seconds", "Seconds to commit one or more blocks."
)

OBJECT_REQUESTS = CounterSpec(
    "stratalog_objects_requests",
    "Requests to the object store, retries included.",
    ("operation",),
)
OBJECT_ERRORS = CounterSpec(
    "stratalog_objects_errors",
    "Calls of the object store that failed.",
    ("operation", "error"),
)
OBJECT_BYTES = CounterSpec(
    "stratalog_objects_bytes",
    "Bytes of objects written and read, gaps between ranges included.",
    ("operation",),
)
OBJECT_SECONDS = HistogramSpec(
    "stratalog_objects_seconds",
    "Seconds that calls of the object store took.",
    ("operation",),
    (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
)

SEGMENT_READ_REQUESTS = CounterSpec(
    "stratalog_segment_read_requests",
    "Ranged reads of the objects of segments. `kind` is `index`, `log` (a reader waits for it) or "
    "`ahead` (read-ahead).",
    ("kind",),
)
SEGMENT_READ_BYTES = CounterSpec(
    "stratalog_segment_read_bytes",
    "Bytes read from the objects of segments, as stored.",
    ("kind",),
)
SEGMENT_CACHE_HITS = CounterSpec(
    "stratalog_segment_cache_hits",
    "Indexes and chunks of segments that were in memory or already being read.",
    ("kind",),
)
SEGMENT_CACHE_MISSES = CounterSpec(
    "stratalog_segment_cache_misses",
    "Indexes and chunks of segments that had to be read.",
    ("kind",),
)

JANITOR_REMOVED = CounterSpec(
    "stratalog_janitor_removed", "Rows and objects that a step of the janitor removed.", ("step",)
)
JANITOR_FAILURES = CounterSpec(
    "stratalog_janitor_failures", "Runs of a step of the janitor that failed.", ("step",)
)


def catalogue() -> list[CounterSpec | HistogramSpec]:
    """List every declared metric, in the order of this file."""
    return [value for value in globals().values() if isinstance(value, CounterSpec | HistogramSpec)]


class Metrics:
    """A registry of its own, so that several brokers in one process keep their numbers apart."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def counter(self, spec: CounterSpec) -> Counter:
        """Register a counter. Each can be registered once."""
        return Counter(spec.name, spec.documentation, spec.labels, registry=self.registry)

    def histogram(self, spec: HistogramSpec) -> Histogram:
        """Register a histogram. Each can be registered once."""
        return Histogram(
            spec.name,
            spec.documentation,
            spec.labels,
            buckets=spec.buckets,
            registry=self.registry,
        )
