"""Encoding of rows as the batches of blocks, with the topic and partition of each row. No I/O."""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stratalog.batch.entry import EntryBatch
from stratalog.batch.errors import RowError
from stratalog.batch.from_columns import (
    ByteColumn,
    ColumnEncoder,
    EncodedBatch,
    RecordColumns,
    byte_column,
    choose_partitions,
    header_column,
    no_bytes,
    no_headers,
    record_columns,
    timestamp_column,
)
from stratalog.clock import Clock
from stratalog.ids import Entropy
from stratalog.settings import MIB
from stratalog.spark.sink_model import SinkPlan
from stratalog.spark.sink_topics import TopicNumbers

GROUP_BYTES = 32 * MIB
"""The bytes of rows for one block, before compression. A task holds about five times as much: the
rows as they came and joined, the records, and the blocks that are being uploaded."""
GROUP_ROWS = 1 << 20

Numbers = npt.NDArray[np.int64]


def grouped(
    batches: Iterable[pa.RecordBatch], *, max_bytes: int = GROUP_BYTES, max_rows: int = GROUP_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in larger or smaller Arrow batches, one for each block."""
    held: list[pa.RecordBatch] = []
    held_bytes = held_rows = 0
    for batch in _cut(batches, max_bytes, max_rows):
        if held and (held_bytes + batch.nbytes > max_bytes or held_rows + len(batch) > max_rows):
            yield _joined(held)
            held, held_bytes, held_rows = [], 0, 0
        held.append(batch)
        held_bytes += batch.nbytes
        held_rows += len(batch)
    if held:
        yield _joined(held)


class RowEncoder:
    """Encodes a task's rows. The next partition of rows without a key is kept between calls."""

    def __init__(self, plan: SinkPlan, *, clock: Clock, entropy: Entropy) -> None:
        self._plan = plan
        self._clock = clock
        self._topics = TopicNumbers(plan.topics, plan.codec, entropy)
        self._encoder = ColumnEncoder()
        self.untimely: RowError | None = None
        """The first of the last encoded rows whose time its topic does not accept now. The caller
        decides if that is an error: rows that were written in time may be repeated at any time."""

    def encode(self, rows: pa.RecordBatch) -> list[EntryBatch]:
        """Encode all rows as batches. Raises `RowError`, which ends the whole write."""
        now_ms = self._clock.now_ms()
        topics = self._numbers(rows)
        records = _records(rows, now_ms)
        self.untimely = self._find_untimely(topics, records.timestamps_ms, now_ms)
        partitions = self._partitions(rows, topics, records)
        destinations = self._topics.bases[topics] + partitions
        encoded = self._encoder.encode(records, destinations, self._topics.destinations)
        return [self._entry(batch) for batch in encoded]

    def _numbers(self, rows: pa.RecordBatch) -> Numbers:
        """Return the number of each row's topic."""
        if self._plan.topic is not None:
            number = self._topics.number(self._plan.topic)
            assert number is not None, "the writer has looked the topic up"
            return np.full(len(rows), number, np.int64)
        names = pc.dictionary_encode(rows.column("topic"), null_encoding="encode")
        numbers = [self._topics.number(name) for name in names.dictionary.to_pylist()]
        if None in numbers:
            bad = numbers.index(None)
            row = pc.index(names.indices, bad).as_py()
            raise RowError(row, _no_topic(names.dictionary[bad].as_py()))
        found: Numbers = np.array(numbers, np.int64)[names.indices.to_numpy()]
        return found

    def _find_untimely(self, topics: Numbers, times_ms: Numbers, now_ms: int) -> RowError | None:
        earliest, latest = self._topics.time_bounds(now_ms)
        bad = np.flatnonzero((times_ms < earliest[topics]) | (times_ms > latest[topics]))
        if not len(bad):
            return None
        row = int(bad[0])
        topic = int(topics[row])
        return RowError(
            row,
            f"timestamp {times_ms[row]} ms is outside of the range that topic"
            f" {self._topics.named(topic).name!r} takes: from {earliest[topic]} to"
            f" {latest[topic]} (message.timestamp.before.max.ms and after.max.ms)",
        )

    def _partitions(self, rows: pa.RecordBatch, topics: Numbers, records: RecordColumns) -> Numbers:
        given = self._given_partitions(rows, topics)
        sizes = np.diff(records.values.starts)
        known = self._topics
        chosen: Numbers = choose_partitions(
            topics, known.counts, given, records.keys, sizes, known.sticky
        )
        return chosen

    def _given_partitions(self, rows: pa.RecordBatch, topics: Numbers) -> Numbers:
        """Return the partitions of the column `partition`, or -1 where it is null."""
        if "partition" not in rows.schema.names:
            return np.full(len(rows), -1, np.int64)
        column = rows.column("partition")
        given: Numbers = column.fill_null(-1).to_numpy().astype(np.int64)
        there = column.is_valid().to_numpy(zero_copy_only=False)
        bad = np.flatnonzero(there & ((given < 0) | (given >= self._topics.counts[topics])))
        if len(bad):
            row = int(bad[0])
            topic = self._topics.named(int(topics[row]))
            raise RowError(
                row,
                f"topic {topic.name!r} has no partition {given[row]}: it has"
                f" {topic.partition_count}, from 0 on",
            )
        return given

    def _entry(self, batch: EncodedBatch) -> EntryBatch:
        topic, partition = self._topics.targets[batch.destination]
        return EntryBatch(
            topic_id=topic.id,
            topic_name=topic.name,
            partition=partition,
            timestamp_type=topic.config.timestamp_type,
            header=batch.header,
            data=memoryview(batch.data),
        )


def _cut(
    batches: Iterable[pa.RecordBatch], max_bytes: int, max_rows: int
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        parts = max(-(-batch.nbytes // max_bytes), -(-len(batch) // max_rows), 1)
        step = max(-(-len(batch) // parts), 1)
        for start in range(0, len(batch), step):
            yield batch.slice(start, step)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    [joined] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _records(rows: pa.RecordBatch, now_ms: int) -> RecordColumns:
    names = rows.schema.names
    times = np.full(len(rows), now_ms, np.int64)
    if "timestamp" in names:
        times = timestamp_column(rows.column("timestamp"), now_ms)
    headers = header_column(rows.column("headers")) if "headers" in names else no_headers(len(rows))
    return record_columns(times, _bytes(rows, "key"), _bytes(rows, "value"), headers)


def _bytes(rows: pa.RecordBatch, name: str) -> ByteColumn:
    if name not in rows.schema.names:
        return no_bytes(len(rows))
    return byte_column(rows.column(name))


def _no_topic(name: str | None) -> str:
    if name is None:
        return "column 'topic' is null"
    return f"there is no topic {name!r}: create it before the write begins"
