"""Where offsets and times live: segments, rows and their boundaries, from one snapshot.

The boundaries alone decide whether an offset is in a segment or in a row. Segments lie below the
block range, so a lookup by time searches them first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from stratalog.control.keys import partition_rows
from stratalog.control.ledger import Ledger
from stratalog.control.log.model import (
    BATCHES,
    COORDINATES,
    Coordinates,
    FoundBatches,
    PartitionState,
    Span,
    TimeQuery,
)
from stratalog.control.log.partitions import read_states
from stratalog.control.segments.model import SEGMENT, Segment
from stratalog.control.sql.database import Connection, Row, Rows
from stratalog.ids import Offset, TopicPartition

FIRST_LOOK_ROWS = 8
"""A database counts bytes no sooner than it has read the row. So most spans are asked for a few
rows, which is enough for a consumer at the head, and only hungry ones for more."""
MAX_SPAN_ROWS = 2048
"""Bounds an answer about tiny rows. The reader comes back for the rest."""
MAX_SPAN_SEGMENTS = 16
"""Bounds an answer about tiny segments, each of which carries its manifest."""
MAX_CALL_ROWS = 20_000
"""Bounds an answer about many spans, of which each gets one row at the least: a few megabytes, and
some tenths of a second on either database."""
MAX_CALL_SEGMENTS = 1_000

_SPAN = BATCHES.shape("topic_id", "partition", first_offset="bigint", max_bytes="bigint")
_TIME = BATCHES.shape("topic_id", "partition", timestamp="bigint")


@cache
def _span_query(max_rows: int) -> str:
    """The bound stands in the text, because PostgreSQL takes no column in its place."""
    return f"""
        SELECT {COORDINATES.columns}
        FROM (
            SELECT batches.*,
                SUM(byte_size) OVER (ORDER BY last_offset) - byte_size AS bytes_before
            FROM (
                SELECT * FROM batches
                WHERE batches.topic_id = r.topic_id AND batches.partition = r.partition
                    AND batches.last_offset >= r.first_offset
                ORDER BY last_offset LIMIT {max_rows}
            ) AS batches
        ) AS batches
        JOIN objects ON objects.object_id = batches.object_id
        WHERE batches.bytes_before < r.max_bytes ORDER BY batches.last_offset
    """


# Rows that end below block_start wait for their deletion.
_SERVED_ROWS = f"""
    SELECT {COORDINATES.columns} FROM partitions
    JOIN topics ON topics.topic_id = partitions.topic_id AND topics.deleted_ms IS NULL
    JOIN batches ON batches.topic_id = partitions.topic_id
        AND batches.partition = partitions.partition
        AND batches.last_offset >= partitions.block_start
    JOIN objects ON objects.object_id = batches.object_id
    WHERE partitions.topic_id = r.topic_id AND partitions.partition = r.partition
"""
_SERVED_SEGMENTS = f"""
    SELECT {SEGMENT.columns} FROM partitions
    JOIN topics ON topics.topic_id = partitions.topic_id AND topics.deleted_ms IS NULL
    JOIN segments ON segments.topic_id = partitions.topic_id
        AND segments.partition = partitions.partition
        AND segments.chained AND segments.last_offset >= partitions.log_start
    WHERE partitions.topic_id = r.topic_id AND partitions.partition = r.partition
"""
_SEGMENT_BY_TIME = f"""
    {_SERVED_SEGMENTS} AND segments.max_timestamp >= r.timestamp
    ORDER BY segments.last_offset LIMIT 1
"""
_ROW_BY_TIME = f"""
    {_SERVED_ROWS} AND batches.max_timestamp >= r.timestamp
    ORDER BY batches.last_offset LIMIT 1
"""
_NEWEST_SEGMENT = f"""
    {_SERVED_SEGMENTS} ORDER BY segments.max_timestamp DESC, segments.last_offset LIMIT 1
"""
_NEWEST_ROW = f"""
    {_SERVED_ROWS} ORDER BY batches.max_timestamp DESC, batches.last_offset LIMIT 1
"""
_ALL_ROWS = f"""
    SELECT {COORDINATES.columns} FROM batches
    JOIN objects ON objects.object_id = batches.object_id
    WHERE batches.topic_id = $1 AND batches.partition = $2 AND batches.last_offset > $3
    ORDER BY batches.last_offset LIMIT $4
"""


@cache
def _segment_span_query(max_segments: int) -> str:
    """The first segment is read from somewhere inside and may give little: only the others
    count."""
    return f"""
        SELECT {SEGMENT.columns}
        FROM (
            SELECT segments.*,
                SUM(size_bytes) OVER (ORDER BY last_offset) - size_bytes
                    - FIRST_VALUE(size_bytes) OVER (ORDER BY last_offset) AS bytes_before
            FROM (
                SELECT * FROM segments
                WHERE segments.topic_id = r.topic_id AND segments.partition = r.partition
                    AND segments.chained AND segments.last_offset >= r.first_offset
                ORDER BY last_offset LIMIT {max_segments}
            ) AS segments
        ) AS segments
        WHERE segments.bytes_before < r.max_bytes ORDER BY segments.last_offset
    """


class ReadOperations(Ledger):
    async def find_batches(
        self, spans: Sequence[Span], *, max_bytes: int | None = None
    ) -> list[FoundBatches]:
        """Find the rows of each span until its `max_bytes` is crossed (the crossing row included).

        An answer about many tiny rows ends earlier; the reader asks again from where it ends. With
        `max_bytes`, the bytes that all spans may answer with together, the call as a whole is
        bounded: each span gets its first rows, and more only as far as they fit the answer.
        """
        return await self._database.read(lambda connection: _find(connection, spans, max_bytes))

    async def find_by_time(
        self, queries: Sequence[TimeQuery]
    ) -> list[Segment | Coordinates | None]:
        """Find for each query the first segment or row, by offset, whose newest record is not older
        than asked. Segments that end below `log_start` do not count."""
        source = Rows(_TIME, [(q.topic_id, q.partition, q.timestamp) for q in queries])
        return await self._database.read(lambda connection: _find_by_time(connection, source))

    async def find_newest(
        self, wanted: Sequence[TopicPartition]
    ) -> list[Segment | Coordinates | None]:
        """Find for each partition the first segment or row that holds its greatest timestamp."""
        source = partition_rows(wanted)
        return await self._database.read(lambda connection: _find_newest(connection, source))

    async def all_coordinates(
        self, partition: TopicPartition, *, after: Offset | None = None, limit: int
    ) -> list[Coordinates]:
        """Return a partition's rows in offset order, for `fsck`.

        Rows that end below `block_start` wait for their deletion; no read is sent to them.
        """
        rows = await self._database.read(
            lambda connection: connection.fetch(
                _ALL_ROWS, *partition, -1 if after is None else after, limit
            )
        )
        return COORDINATES.read_all(rows)


async def _find(
    connection: Connection, spans: Sequence[Span], max_bytes: int | None
) -> list[FoundBatches]:
    states = await read_states(connection, [span.topic_partition for span in spans])
    segments = await _find_segments(connection, spans, states, is_bounded=max_bytes is not None)
    in_blocks = [
        _span_in_blocks(span, states.get(span.topic_partition), segments.get(i, ()))
        for i, span in enumerate(spans)
    ]
    rows = await _RowSearch(connection, in_blocks, states, max_bytes).run()
    return [
        FoundBatches(
            state=states.get(span.topic_partition), pieces=[*segments.get(i, ()), *rows[i]]
        )
        for i, span in enumerate(spans)
    ]


async def _find_segments(
    connection: Connection,
    spans: Sequence[Span],
    states: Mapping[TopicPartition, PartitionState],
    *,
    is_bounded: bool,
) -> dict[int, Sequence[Segment]]:
    """Find the segments of spans that begin in the remote tier, by the number of the span."""
    looking = [
        i for i, span in enumerate(spans) if _in_segments(span, states.get(span.topic_partition))
    ]
    if not looking:
        return {}
    each = MAX_SPAN_SEGMENTS
    if is_bounded:
        each = _share(MAX_CALL_SEGMENTS, len(looking), most=MAX_SPAN_SEGMENTS)
    source = Rows(_SPAN, [_wanted(spans[i], (), spans[i].max_bytes) for i in looking])
    answers = await connection.fetch_each(_segment_span_query(each), source)
    found = zip(looking, answers, strict=True)
    return {i: _without_gap(spans[i], SEGMENT.read_all(rows)) for i, rows in found}


@dataclass(slots=True)
class _RowSearch:
    """Two looks for the rows of the spans of one call; None is a span without rows."""

    connection: Connection
    spans: Sequence[Span | None]
    states: Mapping[TopicPartition, PartitionState]
    max_bytes: int | None
    found: dict[int, list[Coordinates]] = field(default_factory=dict)

    async def run(self) -> list[Sequence[Coordinates]]:
        looking = {i: span for i, span in enumerate(self.spans) if span is not None}
        if looking:
            await self._look_for_first_rows(looking)
        return [
            () if span is None else _from_offset(span, self.found[i])
            for i, span in enumerate(self.spans)
        ]

    async def _look_for_first_rows(self, looking: Mapping[int, Span]) -> None:
        self.found = {i: [] for i in looking}
        each = FIRST_LOOK_ROWS
        if self.max_bytes is not None:
            each = _share(MAX_CALL_ROWS, len(looking), most=FIRST_LOOK_ROWS)
        await self._look({i: (span, span.max_bytes) for i, span in looking.items()}, each)
        hungry = {i: span for i, span in looking.items() if self._is_hungry(i, span, each)}
        if hungry:
            await self._look_for_more_rows(hungry)

    async def _look_for_more_rows(self, hungry: Mapping[int, Span]) -> None:
        """Give the hungry spans even shares of the answer's rest, and none where nothing is left.

        A span that could use more comes back with the reader's next request.
        """
        most = MAX_SPAN_ROWS - FIRST_LOOK_ROWS
        if self.max_bytes is None:
            await self._look({i: (span, span.max_bytes) for i, span in hungry.items()}, most)
            return
        found_bytes = (
            min(_bytes(rows), max(span.max_bytes, 1))
            for span, rows in zip(filter(None, self.spans), self.found.values(), strict=True)
        )
        rest_bytes = self.max_bytes - sum(found_bytes)
        rest_rows = MAX_CALL_ROWS - sum(map(len, self.found.values()))
        served = list(hungry.items())[: max(0, min(rest_bytes, rest_rows))]
        if served:
            share = rest_bytes // len(served)
            wanted = {
                i: (span, min(span.max_bytes, _bytes(self.found[i]) + share)) for i, span in served
            }
            await self._look(wanted, _share(rest_rows, len(served), most=most))

    async def _look(self, wanted: Mapping[int, tuple[Span, int]], max_rows: int) -> None:
        source = Rows(
            _SPAN,
            [_wanted(span, self.found[i], max_bytes) for i, (span, max_bytes) in wanted.items()],
        )
        answers = await self.connection.fetch_each(_span_query(max_rows), source)
        for i, rows in zip(wanted, answers, strict=True):
            self.found[i].extend(map(COORDINATES.read, rows))

    def _is_hungry(self, place: int, span: Span, looked_for: int) -> bool:
        rows = self.found[place]
        return (
            len(rows) == looked_for
            and _bytes(rows) < span.max_bytes
            and rows[-1].last_offset + 1 < self.states[span.topic_partition].block_end
        )


def _share(total: int, among: int, *, most: int) -> int:
    """Return an even share of a bound: `most`, or else a power of two, so that a database sees few
    different statements."""
    share = max(1, total // among)
    return most if share >= most else 1 << (share.bit_length() - 1)


def _in_segments(span: Span, state: PartitionState | None) -> bool:
    if state is None or not state.log_start <= span.offset < state.remote_end:
        return False
    return not state.block_start <= span.offset < state.block_end


def _span_in_blocks(
    span: Span, state: PartitionState | None, segments: Sequence[Segment]
) -> Span | None:
    """Return the part of the span that lies in the block tier, if any."""
    if state is None or span.offset < state.log_start:
        return None
    if state.block_start <= span.offset < state.block_end:
        return span
    if not segments or not segments[-1].end_offset == state.remote_end == state.block_start:
        return None
    left = max(span.max_bytes, 1) - sum(segment.size_bytes for segment in segments[1:])
    return replace(span, offset=state.block_start, max_bytes=left) if left > 0 else None


def _wanted(span: Span, found: Sequence[Coordinates], max_bytes: int) -> tuple[object, ...]:
    """Return the rest of the span. The first row comes whatever the budget."""
    first_offset = found[-1].last_offset + 1 if found else span.offset
    return (span.topic_id, span.partition, first_offset, max(max_bytes, 1) - _bytes(found))


def _bytes(found: Sequence[Coordinates]) -> int:
    return sum(row.byte_size for row in found)


def _from_offset(span: Span, rows: Sequence[Coordinates]) -> Sequence[Coordinates]:
    # An answer that begins with a later row would be a silent skip. An empty answer inside the
    # block range makes the reader look again and then fail, which is right for a hole.
    return rows if rows and rows[0].base_offset <= span.offset else ()


def _without_gap(span: Span, segments: Sequence[Segment]) -> Sequence[Segment]:
    """The segments from the one that holds the offset up to the first gap, as for rows."""
    if not segments or segments[0].base_offset > span.offset:
        return ()
    for i in range(1, len(segments)):
        if segments[i].base_offset != segments[i - 1].end_offset:
            return segments[:i]
    return segments


async def _find_by_time(connection: Connection, source: Rows) -> list[Segment | Coordinates | None]:
    segments = await connection.fetch_each(_SEGMENT_BY_TIME, source)
    found: list[Segment | Coordinates | None] = [_first_segment(rows) for rows in segments]
    missing = [i for i, segment in enumerate(found) if segment is None]
    answers = await connection.fetch_each(
        _ROW_BY_TIME, Rows(source.shape, [source.values[i] for i in missing])
    )
    for i, rows in zip(missing, answers, strict=True):
        found[i] = _first_row(rows)
    return found


async def _find_newest(connection: Connection, source: Rows) -> list[Segment | Coordinates | None]:
    segments = await connection.fetch_each(_NEWEST_SEGMENT, source)
    rows = await connection.fetch_each(_NEWEST_ROW, source)
    return [
        _newer(_first_segment(in_segments), _first_row(in_blocks))
        for in_segments, in_blocks in zip(segments, rows, strict=True)
    ]


def _newer(segment: Segment | None, row: Coordinates | None) -> Segment | Coordinates | None:
    if segment is None or (row is not None and row.max_timestamp > segment.max_timestamp):
        return row
    return segment


def _first_segment(rows: Sequence[Row]) -> Segment | None:
    return SEGMENT.read(rows[0]) if rows else None


def _first_row(rows: Sequence[Row]) -> Coordinates | None:
    return COORDINATES.read(rows[0]) if rows else None
