"""How much memory a broker takes, idle and under load.

Run: python -m bench.memory [--records 600000]

Resident memory of the broker's process: when it has started, and at most while one producer writes
as fast as it can and one consumer reads everything. `block.max_inflight_bytes` and
`block.cache_bytes` bound the memory under load.
"""

import argparse
import threading

from bench.load import produce_and_consume

from stratalog.cli.bench import TemporaryBroker, temporary_broker
from stratalog.settings import MIB, BlockSettings


class Peak:
    """Watches a process's resident memory from a thread."""

    def __init__(self, broker: TemporaryBroker) -> None:
        self._broker = broker
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.max_bytes = 0

    def __enter__(self) -> "Peak":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self.max_bytes = max(self.max_bytes, self._broker.resident_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=600_000)
    options = parser.parse_args()
    block = BlockSettings()
    with temporary_broker() as broker:
        print(f"idle               {broker.resident_bytes() / MIB:6.0f} MiB")
        with Peak(broker) as peak:
            produce_and_consume(broker.address, options.records)
        print(f"under load, peak   {peak.max_bytes / MIB:6.0f} MiB")
        print(f"of which may be in flight {block.max_inflight_bytes / MIB:.0f} MiB", end=", ")
        print(f"cached {block.cache_bytes / MIB:.0f} MiB")


if __name__ == "__main__":
    main()
