"""The one registry of counters, gauges and histograms of a process."""

from prometheus_client import CollectorRegistry


class Metrics:
    """A registry of its own, so that several brokers in one process keep their numbers apart."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
