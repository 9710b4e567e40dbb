"""The gain of a second worker for a broker whose processor is the limit.

Run: python -m bench.workers [--producers 20] [--records 1000] [--rounds 3]

The load of `small_requests`, whose clients run on the last processor alone. The broker has, in
turns: one worker on the first processor; two workers on the first processor, which shows the price
of sharing; and two workers on all processors. With two processors the third has its second worker
on the clients' one, so that the bench shows a part of the gain: no more than the clients leave.
"""

import argparse
import os
import statistics
from collections.abc import Sequence

from bench.small_requests import requests_per_second

from stratalog.cli.bench import temporary_broker
from stratalog.cli.bench_client import PARTITIONS

PROCESSORS = sorted(os.sched_getaffinity(0))
SIDES: dict[str, tuple[int, Sequence[int]]] = {
    "one worker on the first processor": (1, PROCESSORS[:1]),
    "two workers on the first processor": (2, PROCESSORS[:1]),
    "two workers on all processors": (2, PROCESSORS),
}


def rate(workers: int, processors: Sequence[int], producers: int, records: int) -> float:
    os.sched_setaffinity(0, processors)
    flags = [f"broker.default_partitions={PARTITIONS}", f"broker.workers={workers}"]
    with temporary_broker(flags) as broker:
        os.sched_setaffinity(0, PROCESSORS[-1:])
        requests_per_second(broker.address, producers, records // 4)
        return requests_per_second(broker.address, producers, records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--producers", type=int, default=20)
    parser.add_argument("--records", type=int, default=1000, help="of each producer")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if len(PROCESSORS) < 2:
        raise SystemExit("this machine has one processor: a second worker can bring nothing")
    rates: dict[str, list[float]] = {name: [] for name in SIDES}
    for number in range(options.rounds):
        for name, (workers, processors) in SIDES.items():
            rates[name].append(rate(workers, processors, options.producers, options.records))
            print(f"round {number + 1}: {name:36} {rates[name][-1]:7.0f} requests/s", flush=True)
    first = statistics.median(next(iter(rates.values())))
    for name, each in rates.items():
        print(f"{name:36} ratio {statistics.median(each) / first:.2f}")


if __name__ == "__main__":
    main()
