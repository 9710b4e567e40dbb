"""Numbers out of measurements."""

from collections.abc import Sequence


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """The 50th and the 99th percentile."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)]
