"""The price of walking the records of a produced batch at its entry, in processor time.

Run: python -m bench.entry_walk

A batch is checked as a broker does it, with the walk and without: header, checksum, rules. All in
one thread, in the smallest of several turns, so that other work of the machine hardly counts.
"""

import time
from collections.abc import Callable

from stratalog.batch.build import build_batch
from stratalog.batch.header import parse_header
from stratalog.batch.records import Record
from stratalog.batch.validate import validate

SHAPES = ((1, 100), (100, 1024), (1000, 100))
"""Records, and the bytes of each."""
TURNS = 9
TURN_SECONDS = 0.05


def least_us(work: Callable[[], object]) -> float:
    work()
    least, rounds = float("inf"), 1
    for _ in range(TURNS):
        start = time.process_time()
        for _ in range(rounds):
            work()
        spent = time.process_time() - start
        least = min(least, spent / rounds)
        rounds = max(rounds, round(TURN_SECONDS / max(least, 1e-9)))
    return least * 1e6


def show(batch: memoryview, count: int, size_bytes: int, now_ms: int) -> None:
    header = parse_header(batch)
    plain = least_us(lambda: validate(batch, 0, header, latest_timestamp_ms=now_ms))
    deep = least_us(lambda: validate(batch, 0, header, latest_timestamp_ms=now_ms, deep=True))
    walk = f"the walk {deep - plain:.1f} us, {(deep - plain) / len(batch) * 1e3:.2f} ns/byte"
    print(f"{count:4} records of {size_bytes:4} bytes: checked {plain:5.1f} us, {walk}")


def main() -> None:
    now_ms = time.time_ns() // 1_000_000
    for count, size_bytes in SHAPES:
        records = [Record(place, now_ms, None, bytes(size_bytes)) for place in range(count)]
        show(memoryview(bytearray(build_batch(records))), count, size_bytes, now_ms)


if __name__ == "__main__":
    main()
