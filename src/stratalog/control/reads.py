"""Where offsets and times live: rows and the boundaries they belong to, from one snapshot."""

from collections.abc import Sequence

from stratalog.batch.header import TimestampType
from stratalog.control.database import Connection, Row, Rows, as_uuid, shape
from stratalog.control.model import (
    Coordinates,
    FoundBatches,
    PartitionState,
    Span,
    TimeQuery,
)
from stratalog.control.operations import Operations, partition_rows
from stratalog.control.partitions import read_states
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

_COLUMNS = (
    "b.topic_id, b.partition, b.base_offset, b.last_offset, b.object_id, o.key, b.byte_offset,"
    " b.byte_size, b.max_timestamp, b.timestamp_type, b.committed_ms, b.leader_epoch, b.stamped"
)
_SPAN = shape(topic_id="uuid", partition="integer", first_offset="bigint", max_bytes="bigint")
_TIME = shape(topic_id="uuid", partition="integer", timestamp="bigint")


_TIMESTAMP_TYPES = tuple(TimestampType)
"""By number: a lookup is ten times as fast as the enum's own, and every row needs one."""


def _span_query(max_rows: int) -> str:
    return (
        f"SELECT {_COLUMNS} FROM (SELECT w.*,"
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
    "SELECT " + _COLUMNS + " FROM partitions p"
    " JOIN topics t ON t.topic_id = p.topic_id AND t.deleted_ms IS NULL"
    " JOIN batches b ON b.topic_id = p.topic_id AND b.partition = p.partition"
    " AND b.last_offset >= p.block_start JOIN objects o ON o.object_id = b.object_id"
    " WHERE p.topic_id = r.topic_id AND p.partition = r.partition"
)


class ReadOperations(Operations):
    async def find_batches(self, spans: Sequence[Span]) -> list[FoundBatches]:
        return await self._database.read(lambda connection: _find(connection, spans))

    async def find_by_time(self, queries: Sequence[TimeQuery]) -> list[Coordinates | None]:
        source = Rows(_TIME, [(q.topic_id, q.partition, q.timestamp) for q in queries])
        query = f"{_SERVED_ROWS} AND b.max_timestamp >= r.timestamp ORDER BY b.last_offset LIMIT 1"
        answers = await self._database.read(lambda connection: connection.fetch_each(query, source))
        return [_coordinates(rows[0]) if rows else None for rows in answers]

    async def find_newest(self, wanted: Sequence[TopicPartition]) -> list[Coordinates | None]:
        query = f"{_SERVED_ROWS} ORDER BY b.max_timestamp DESC, b.last_offset LIMIT 1"
        answers = await self._database.read(
            lambda connection: connection.fetch_each(query, partition_rows(wanted))
        )
        return [_coordinates(rows[0]) if rows else None for rows in answers]

    async def all_coordinates(
        self, partition: TopicPartition, *, after: Offset | None = None, limit: int
    ) -> list[Coordinates]:
        rows = await self._database.read(
            lambda connection: connection.fetch(
                f"SELECT {_COLUMNS} FROM batches b JOIN objects o ON o.object_id = b.object_id"
                " WHERE b.topic_id = $1 AND b.partition = $2 AND b.last_offset > $3"
                " ORDER BY b.last_offset LIMIT $4",
                *partition,
                -1 if after is None else after,
                limit,
            )
        )
        return [_coordinates(row) for row in rows]


async def _find(connection: Connection, spans: Sequence[Span]) -> list[FoundBatches]:
    states = await read_states(connection, [span.topic_partition for span in spans])
    found: list[list[Coordinates]] = [[] for _ in spans]
    looking = [i for i, span in enumerate(spans) if _in_blocks(span, states)]
    for query in (_FIRST_LOOK, _SECOND_LOOK):
        if not looking:
            break
        source = Rows(_SPAN, [_rest(spans[i], found[i]) for i in looking])
        for i, rows in zip(looking, await connection.fetch_each(query, source), strict=True):
            found[i].extend(map(_coordinates, rows))
        looking = [i for i in looking if _is_hungry(spans[i], found[i], states)]
    return [
        FoundBatches(state=states.get(span.topic_partition), rows=_from_offset(span, rows))
        for span, rows in zip(spans, found, strict=True)
    ]


def _in_blocks(span: Span, states: dict[TopicPartition, PartitionState]) -> bool:
    state = states.get(span.topic_partition)
    if state is None or span.offset < state.log_start:
        return False
    return state.block_start <= span.offset < state.block_end


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


def _coordinates(row: Row) -> Coordinates:
    (
        topic_id, partition, base_offset, last_offset, object_id, object_key, byte_offset,
        byte_size, max_timestamp, timestamp_type, committed_ms, leader_epoch, stamped,
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
    )
