"""Metrics of requests."""

from collections.abc import Iterable

from stratalog.kafka.wire.api import ApiKey
from stratalog.metrics import PARTITION_ERRORS, REQUEST_SECONDS, Metrics


class RequestMetrics:
    def __init__(self, metrics: Metrics, served: Iterable[ApiKey]) -> None:
        """Every served API is exported from the start, also before its first request."""
        seconds = metrics.histogram(REQUEST_SECONDS)
        self._seconds = {key: seconds.labels(key.name.lower()) for key in served}
        self._partition_errors = metrics.counter(PARTITION_ERRORS)

    def answered(self, key: ApiKey, seconds: float) -> None:
        self._seconds[key].observe(seconds)

    def partition_failed(self, key: ApiKey, error: str) -> None:
        self._partition_errors.labels(key.name.lower(), error).inc()
