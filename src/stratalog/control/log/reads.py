"""Where offsets and times live: segments, rows and their boundaries, from one snapshot.

Which of the two an offset is in follows from the boundaries alone. Below the block range lie the
segments, so whatever is looked for by time is looked for in them first.
"""

from collections.abc import Sequence
from dataclasses import replace

from stratalog.batch.header import TimestampType
from stratalog.control.keys import partition_rows
from stratalog.control.ledger import Ledger
from stratalog.control.log.model import Coordinates, FoundBatches, PartitionState, Span, TimeQuery
from stratalog.control.log.partitions import read_states
from stratalog.control.segments.model import Segment
from stratalog.control.segments.rows import SEGMENT_COLUMNS, segment_of
from stratalog.control.sql.database import Connection, Row, Rows, as_uuid, shape
from stratalog.ids import (
    LeaderEpoch,
    ObjectId,
    Offset,
    PartitionIndex,
    TopicId,
    TopicPartition,
)

FIRST_LOOK_ROWS = 8
"""A database counts bytes no sooner than it has read the row, so most spans are asked for a few
rows, which is enough for a consumer at the head, and only hungry ones for more."""
MAX_SPAN_ROWS = 2048
"""Bounds an answer about tiny rows. The reader comes back for the rest."""
MAX_SPAN_SEGMENTS = 16
"""Bounds an answer about tiny segments, each of which carries its manifest."""

ROW_COLUMNS = (
    "b.topic_id, b.partition, b.base_offset, b.last_offset, b.object_id, o.key, b.byte_offset,"
    " b.byte_size, b.max_timestamp, b.timestamp_type, b.committed_ms, b.leader_epoch, b.stamped,"
    " b.oldest_ms"
)
_SPAN = shape(topic_id="uuid", partition="integer", first_offset="bigint", max_bytes="bigint")
_TIME = shape(topic_id="uuid", partition="integer", timestamp="bigint")


_TIMESTAMP_TYPES = tuple(TimestampType)
"""By number: a lookup is ten times as fast as the enum's own, and every row needs one."""


def _span_query(max_rows: int) -> str:
    return (
        f"SELECT {ROW_COLUMNS} FROM (SELECT w.*,"
        " SUM(w.byte_size) OVER (ORDER BY w.last_offset) - w.byte_size AS bytes_before"
        " FROM (SELECT * FROM batches x WHERE x.topic_id = r.topic_id"
        " AND x.partition = r.partition AND x.last_offset >= r.first_offset"
        f" ORDER BY x.last_offset LIMIT {max_rows}) w) b"
        " JOIN objects o ON o.object_id = b.object_id"
        " WHERE b.bytes_before < r.max_bytes ORDER BY b.last_offset"
    )


_FIRST_LOOK = _span_query(FIRST_LOOK_ROWS)
_SECOND_LOOK = _span_query(MAX_SPAN_ROWS - FIRST_LOOK_ROWS)

# Rows below block_start wait for their deletion and belong to nobody.
_SERVED_ROWS = (
    "SELECT " + ROW_COLUMNS + " FROM partitions p"
    " JOIN topics t ON t.topic_id = p.topic_id AND t.deleted_ms IS NULL"
    " JOIN batches b ON b.topic_id = p.topic_id AND b.partition = p.partition"
    " AND b.last_offset >= p.block_start JOIN objects o ON o.object_id = b.object_id"
    " WHERE p.topic_id = r.topic_id AND p.partition = r.partition"
)
_SERVED_SEGMENTS = (
    "SELECT " + SEGMENT_COLUMNS + " FROM partitions p"
    " JOIN topics t ON t.topic_id = p.topic_id AND t.deleted_ms IS NULL"
    " JOIN segments s ON s.topic_id = p.topic_id AND s.partition = p.partition"
    " AND s.chained AND s.last_offset >= p.log_start"
    " WHERE p.topic_id = r.topic_id AND p.partition = r.partition"
)

# The first segment is read from somewhere inside and may give little: only the others count.
_SEGMENT_SPAN = (
    f"SELECT {SEGMENT_COLUMNS} FROM (SELECT w.*,"
    " SUM(w.size_bytes) OVER (ORDER BY w.last_offset) - w.size_bytes"
    " - FIRST_VALUE(w.size_bytes) OVER (ORDER BY w.last_offset) AS bytes_before"
    " FROM (SELECT * FROM segments x WHERE x.topic_id = r.topic_id"
    " AND x.partition = r.partition AND x.chained AND x.last_offset >= r.first_offset"
    f" ORDER BY x.last_offset LIMIT {MAX_SPAN_SEGMENTS}) w) s"
    " WHERE s.bytes_before < r.max_bytes ORDER BY s.last_offset"
)


class ReadOperations(Ledger):
    async def find_batches(self, spans: Sequence[Span]) -> list[FoundBatches]:
        """Rows for each span until its `max_bytes` is crossed (the crossing row included).

        An answer about many tiny rows ends earlier; the reader asks again from where it ends.
        """
        return await self._database.read(lambda connection: _find(connection, spans))

    async def find_by_time(
        self, queries: Sequence[TimeQuery]
    ) -> list[Segment | Coordinates | None]:
        """For each query the first segment or row, by offset, whose newest record is not older
        than asked. Segments that end below `log_start` do not count."""
        source = Rows(_TIME, [(q.topic_id, q.partition, q.timestamp) for q in queries])
        return await self._database.read(lambda connection: _find_by_time(connection, source))

    async def find_newest(
        self, wanted: Sequence[TopicPartition]
    ) -> list[Segment | Coordinates | None]:
        """For each partition the first segment or row that holds its greatest timestamp."""
        source = partition_rows(wanted)
        return await self._database.read(lambda connection: _find_newest(connection, source))

    async def all_coordinates(
        self, partition: TopicPartition, *, after: Offset | None = None, limit: int
    ) -> list[Coordinates]:
        """A partition's rows in offset order, for `fsck`.

        Rows that end below `block_start` wait for their deletion; no read is sent to them.
        """
        rows = await self._database.read(
            lambda connection: connection.fetch(
                f"SELECT {ROW_COLUMNS} FROM batches b JOIN objects o ON o.object_id = b.object_id"
                " WHERE b.topic_id = $1 AND b.partition = $2 AND b.last_offset > $3"
                " ORDER BY b.last_offset LIMIT $4",
                *partition,
                -1 if after is None else after,
                limit,
            )
        )
        return [coordinates_of(row) for row in rows]


async def _find(connection: Connection, spans: Sequence[Span]) -> list[FoundBatches]:
    states = await read_states(connection, [span.topic_partition for span in spans])
    segments = await _find_segments(connection, spans, states)
    in_blocks = [
        _span_in_blocks(span, states.get(span.topic_partition), segments.get(i, ()))
        for i, span in enumerate(spans)
    ]
    rows = await _find_rows(connection, in_blocks, states)
    return [
        FoundBatches(
            state=states.get(span.topic_partition), pieces=[*segments.get(i, ()), *rows[i]]
        )
        for i, span in enumerate(spans)
    ]


async def _find_segments(
    connection: Connection, spans: Sequence[Span], states: dict[TopicPartition, PartitionState]
) -> dict[int, Sequence[Segment]]:
    """By the number of the span, for those that begin in the remote tier."""
    looking = [
        i for i, span in enumerate(spans) if _in_segments(span, states.get(span.topic_partition))
    ]
    if not looking:
        return {}
    source = Rows(_SPAN, [_rest(spans[i], ()) for i in looking])
    found = zip(looking, await connection.fetch_each(_SEGMENT_SPAN, source), strict=True)
    return {i: _without_gap(spans[i], [segment_of(row) for row in rows]) for i, rows in found}


async def _find_rows(
    connection: Connection,
    spans: Sequence[Span | None],
    states: dict[TopicPartition, PartitionState],
) -> list[Sequence[Coordinates]]:
    found: list[list[Coordinates]] = [[] for _ in spans]
    looking = [(i, span) for i, span in enumerate(spans) if span is not None]
    for query in (_FIRST_LOOK, _SECOND_LOOK):
        if not looking:
            break
        source = Rows(_SPAN, [_rest(span, found[i]) for i, span in looking])
        answers = await connection.fetch_each(query, source)
        for (i, _), rows in zip(looking, answers, strict=True):
            found[i].extend(map(coordinates_of, rows))
        looking = [(i, span) for i, span in looking if _is_hungry(span, found[i], states)]
    return [
        () if span is None else _from_offset(span, rows)
        for span, rows in zip(spans, found, strict=True)
    ]


def _in_segments(span: Span, state: PartitionState | None) -> bool:
    if state is None or not state.log_start <= span.offset < state.remote_end:
        return False
    return not state.block_start <= span.offset < state.block_end


def _span_in_blocks(
    span: Span, state: PartitionState | None, segments: Sequence[Segment]
) -> Span | None:
    """What of the span is to be looked for in the block tier, if anything."""
    if state is None or span.offset < state.log_start:
        return None
    if state.block_start <= span.offset < state.block_end:
        return span
    if not segments or not segments[-1].end_offset == state.remote_end == state.block_start:
        return None
    left = max(span.max_bytes, 1) - sum(segment.size_bytes for segment in segments[1:])
    return replace(span, offset=state.block_start, max_bytes=left) if left > 0 else None


def _rest(span: Span, found: Sequence[Coordinates]) -> tuple[object, ...]:
    """What is still to be looked for. The first row comes whatever the budget."""
    first_offset = found[-1].last_offset + 1 if found else span.offset
    max_bytes = max(span.max_bytes, 1) - _bytes(found)
    return (span.topic_id, span.partition, first_offset, max_bytes)


def _is_hungry(
    span: Span, found: Sequence[Coordinates], states: dict[TopicPartition, PartitionState]
) -> bool:
    block_end = states[span.topic_partition].block_end
    return (
        len(found) == FIRST_LOOK_ROWS
        and _bytes(found) < span.max_bytes
        and found[-1].last_offset + 1 < block_end
    )


def _bytes(found: Sequence[Coordinates]) -> int:
    return sum(row.byte_size for row in found)


def _from_offset(span: Span, rows: Sequence[Coordinates]) -> Sequence[Coordinates]:
    # To begin with a later row would be a silent skip. An empty answer inside the block range
    # makes the reader look again and then fail, which is right for a hole.
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
    segments = await connection.fetch_each(
        f"{_SERVED_SEGMENTS} AND s.max_timestamp >= r.timestamp ORDER BY s.last_offset LIMIT 1",
        source,
    )
    found: list[Segment | Coordinates | None] = [_first_segment(rows) for rows in segments]
    missing = [i for i, segment in enumerate(found) if segment is None]
    answers = await connection.fetch_each(
        f"{_SERVED_ROWS} AND b.max_timestamp >= r.timestamp ORDER BY b.last_offset LIMIT 1",
        Rows(source.shape, [source.values[i] for i in missing]),
    )
    for i, rows in zip(missing, answers, strict=True):
        found[i] = _first_row(rows)
    return found


async def _find_newest(connection: Connection, source: Rows) -> list[Segment | Coordinates | None]:
    segments = await connection.fetch_each(
        f"{_SERVED_SEGMENTS} ORDER BY s.max_timestamp DESC, s.last_offset LIMIT 1", source
    )
    rows = await connection.fetch_each(
        f"{_SERVED_ROWS} ORDER BY b.max_timestamp DESC, b.last_offset LIMIT 1", source
    )
    return [
        _newer(_first_segment(in_segments), _first_row(in_blocks))
        for in_segments, in_blocks in zip(segments, rows, strict=True)
    ]


def _newer(segment: Segment | None, row: Coordinates | None) -> Segment | Coordinates | None:
    if segment is None or (row is not None and row.max_timestamp > segment.max_timestamp):
        return row
    return segment


def _first_segment(rows: Sequence[Row]) -> Segment | None:
    return segment_of(rows[0]) if rows else None


def _first_row(rows: Sequence[Row]) -> Coordinates | None:
    return coordinates_of(rows[0]) if rows else None


def coordinates_of(row: Row) -> Coordinates:
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
