"""Numbers out of measurements, and how they are printed."""

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import uuid4

from stratalog.cli.bench import Measurement
from stratalog.cli.bench_client import Load

RECORD_BYTES = 1024


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """The 50th and the 99th percentile."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)]


class Options(NamedTuple):
    load: Load
    rounds: int


class Sides(dict[str, str | None]):
    """Names of the measured sides, with addresses. The mock cluster is always among them."""

    def __init__(self, **addresses: str) -> None:
        super().__init__(mock=None, **addresses)


def options(documentation: str | None, *, records: int) -> Options:
    parser = argparse.ArgumentParser(description=(documentation or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=records)
    parser.add_argument("--rounds", type=int, default=3)
    parsed = parser.parse_args()
    load = Load(
        bootstrap=None,
        topic="bench",
        records=parsed.records,
        record_bytes=RECORD_BYTES,
        warm_up_records=parsed.records,
    )
    return Options(load, parsed.rounds)


def compare(what: str, measure: Callable[[Load], Measurement], how: Options, sides: Sides) -> None:
    """Measure all sides in turn, and print their medians with the ratio to the mock cluster's."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(how.rounds):
        for name, address in sides.items():
            load = replace(how.load, bootstrap=address, topic=f"bench-{uuid4().hex[:8]}")
            rates[name].append(measure(load).mb_per_second)
            print(f"round {number + 1}: {what} {name} {rates[name][-1]:.0f} MB/s", flush=True)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    for name, median in medians.items():
        print(f"{what:8} {name:7} {median:6.0f} MB/s   ratio {median / medians['mock']:.2f}")
