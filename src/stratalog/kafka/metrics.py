"""What is counted of requests."""

from prometheus_client import Counter, Histogram

from stratalog.kafka.api import SERVED, ApiKey
from stratalog.metrics import Metrics

_BUCKETS_S = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)


class RequestMetrics:
    def __init__(self, metrics: Metrics) -> None:
        seconds = Histogram(
            "stratalog_request_seconds",
            "From the acceptance of a request to its response.",
            ["api"],
            buckets=_BUCKETS_S,
            registry=metrics.registry,
        )
        self._seconds = {key: seconds.labels(key.name.lower()) for key in SERVED}
        self._partition_errors = Counter(
            "stratalog_partition_errors_total",
            "Partitions of Produce and Fetch requests that were answered with an error.",
            ["api", "error"],
            registry=metrics.registry,
        )

    def answered(self, key: ApiKey, seconds: float) -> None:
        self._seconds[key].observe(seconds)

    def partition_failed(self, key: ApiKey, error: str) -> None:
        self._partition_errors.labels(key.name.lower(), error).inc()
