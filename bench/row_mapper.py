"""How long a generated row mapper takes, beside handwritten ones.

Run: python -m bench.row_mapper [--rows 20000] [--rounds 40]

The mapper of coordinates is the one that fetches use. All ways take turns on the same rows, once
with UUIDs, as PostgreSQL gives them, and once with their text, as SQLite does.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from uuid import UUID

from stratalog.batch.header import TimestampType
from stratalog.control.log.model import COORDINATES, Coordinates
from stratalog.control.sql.database import Row, as_uuid
from stratalog.ids import LeaderEpoch, ObjectId, Offset, PartitionIndex, TopicId

_TIMESTAMP_TYPES = tuple(TimestampType)


def handwritten(row: Row) -> Coordinates:
    (
        topic_id, partition, base_offset, last_offset, object_id, object_key, byte_offset,
        byte_size, max_timestamp, timestamp_type, committed_ms, leader_epoch, stamped,
        oldest_ms,
    ) = row  # fmt: skip
    return Coordinates(
        topic_id=TopicId(as_uuid(topic_id)),
        partition=PartitionIndex(partition),
        base_offset=Offset(base_offset),
        last_offset=Offset(last_offset),
        object_id=ObjectId(as_uuid(object_id)),
        object_key=object_key,
        byte_offset=byte_offset,
        byte_size=byte_size,
        max_timestamp=max_timestamp,
        timestamp_type=_TIMESTAMP_TYPES[timestamp_type],
        committed_ms=committed_ms,
        leader_epoch=LeaderEpoch(leader_epoch),
        stamped=bool(stamped),
        oldest_ms=oldest_ms,
    )


def make_rows(count: int, *, as_text: bool) -> list[Row]:
    topic_id, object_id = UUID(int=7), UUID(int=8)
    ids = (str(topic_id), str(object_id)) if as_text else (topic_id, object_id)
    return [
        (ids[0], i % 64, i, i, ids[1], "blocks/key", i * 100, 100, i, 0, i, 0, as_text, None)
        for i in range(count)
    ]


def measure(mapper: Callable[[Row], Coordinates], rows: Sequence[Row]) -> float:
    start = time.perf_counter()
    list(map(mapper, rows))
    return (time.perf_counter() - start) / len(rows) * 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    for database, as_text in (("PostgreSQL", False), ("SQLite", True)):
        rows = make_rows(options.rows, as_text=as_text)
        assert COORDINATES.read(rows[0]) == handwritten(rows[0])
        times = [
            (measure(handwritten, rows), measure(COORDINATES.read, rows))
            for _ in range(options.rounds)
        ]
        by_hand, generated = map(statistics.median, zip(*times, strict=True))
        print(
            f"{database:10}  handwritten {by_hand:6.0f} ns   generated {generated:6.0f} ns"
            f"   ratio {generated / by_hand:.2f}"
        )


if __name__ == "__main__":
    main()
