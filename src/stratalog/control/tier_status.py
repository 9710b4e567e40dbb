"""Where the pipeline stands with topics, for people."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from stratalog.control.aged import read_cutoffs
from stratalog.control.batch_rows import OLDEST_MS
from stratalog.control.database import Connection, Row, Rows, as_uuid, shape
from stratalog.control.model import ObjectKind, WriteTier
from stratalog.control.operations import Operations
from stratalog.control.partitions import partition_key
from stratalog.control.pipeline_model import ParkedUnit, TierStatus
from stratalog.control.topic_orders import TopicOrders, read_orders
from stratalog.ids import Offset, PartitionIndex, TopicId

_GROUP = 16
"""Topics whose rows are counted with one statement: it must end before its time is over."""

_TOPIC = shape(topic_id="uuid", cutoff_ms="bigint")
_BOUNDARIES = (
    "SELECT p.topic_id, p.partition, p.remote_end, p.block_start, h.high_watermark FROM {rows}"
    " JOIN topics t ON t.topic_id = r.topic_id AND t.deleted_ms IS NULL"
    " JOIN partitions p ON p.topic_id = r.topic_id"
    " JOIN heads h ON h.topic_id = p.topic_id AND h.partition = p.partition"
    " ORDER BY p.topic_id, p.partition"
)
_AGED = (
    "b.committed_ms <= r.cutoff_ms AND b.last_offset < COALESCE(p.last_stable, h.high_watermark)"
    f" AND p.write_tier = '{WriteTier.BLOCK.value}'"
)
_PENDING = (
    f"SELECT SUM(g.piece_count), SUM(g.bytes), SUM(CASE WHEN o.kind = '{ObjectKind.SPLIT.value}'"
    " THEN 1 ELSE 0 END), SUM(g.aged_count), SUM(g.aged_bytes), MIN(g.oldest_ms),"
    " (SELECT COUNT(*) FROM segments s WHERE s.topic_id = r.topic_id AND s.chained)"
    " FROM (SELECT b.object_id, COUNT(*) AS piece_count, SUM(b.byte_size) AS bytes,"
    f" SUM(CASE WHEN {_AGED} THEN 1 ELSE 0 END) AS aged_count,"
    f" SUM(CASE WHEN {_AGED} THEN b.byte_size ELSE 0 END) AS aged_bytes,"
    f" MIN({OLDEST_MS}) AS oldest_ms FROM partitions p"
    " JOIN heads h ON h.topic_id = p.topic_id AND h.partition = p.partition"
    " JOIN batches b ON b.topic_id = p.topic_id AND b.partition = p.partition"
    " AND b.last_offset >= p.block_start WHERE p.topic_id = r.topic_id GROUP BY b.object_id) g"
    " JOIN objects o ON o.object_id = g.object_id"
)
_PARKED = (
    "SELECT c.topic_id, c.partition, c.attempts, c.error, c.parked_ms FROM {rows}"
    " JOIN claims c ON c.topic_id = r.topic_id AND c.parked_ms IS NOT NULL"
    " ORDER BY c.topic_id, c.partition"
)


class Boundaries(NamedTuple):
    tiered_end: dict[PartitionIndex, Offset]
    block_start: dict[PartitionIndex, Offset]
    high_watermark: dict[PartitionIndex, Offset]


class TierStatusOperations(Operations):
    async def tier_status(self, ages_ms: Mapping[TopicId, int]) -> list[TierStatus]:
        return await self._database.read(partial(_read, ages_ms=ages_ms))


async def _read(connection: Connection, ages_ms: Mapping[TopicId, int]) -> list[TierStatus]:
    orders = await read_orders(connection, ages_ms)
    cutoffs = await read_cutoffs(connection, ages_ms, orders)
    boundaries = await _boundaries(connection, cutoffs)
    parked = await _parked(connection, cutoffs)
    alive = sorted(boundaries)
    statuses: list[TierStatus] = []
    for i in range(0, len(alive), _GROUP):
        group = alive[i : i + _GROUP]
        counts = await connection.fetch_each(_PENDING, _source(group, cutoffs))
        for topic_id, [count] in zip(group, counts, strict=True):
            statuses.append(
                _status(
                    topic_id,
                    boundaries[topic_id],
                    count,
                    orders.get(topic_id, TopicOrders()),
                    parked.get(topic_id, ()),
                )
            )
    return statuses


async def _boundaries(
    connection: Connection, cutoffs: Mapping[TopicId, int]
) -> dict[TopicId, Boundaries]:
    found: dict[TopicId, Boundaries] = defaultdict(lambda: Boundaries({}, {}, {}))
    for row in await connection.fetch(_BOUNDARIES, rows=_source(list(cutoffs), cutoffs)):
        topic_id, index = partition_key(row)
        for column, value in zip(found[topic_id], row[2:], strict=True):
            column[index] = Offset(value)
    return found


async def _parked(
    connection: Connection, cutoffs: Mapping[TopicId, int]
) -> dict[TopicId, list[ParkedUnit]]:
    found: dict[TopicId, list[ParkedUnit]] = defaultdict(list)
    for row in await connection.fetch(_PARKED, rows=_source(list(cutoffs), cutoffs)):
        _, _, attempts, error, parked_ms = row
        unit = ParkedUnit(partition_key(row), attempts, error or "", parked_ms)
        found[TopicId(as_uuid(row[0]))].append(unit)
    return found


def _status(
    topic_id: TopicId,
    boundaries: Boundaries,
    count: Row,
    orders: TopicOrders,
    parked: Sequence[ParkedUnit],
) -> TierStatus:
    rows, byte_size, split_files, aged_rows, aged_bytes, oldest_ms, segments = count
    triggered_ms = orders.triggered_ms
    if triggered_ms is not None and (oldest_ms is None or oldest_ms > triggered_ms):
        # All that it asked for is done.
        triggered_ms = None
    return TierStatus(
        topic_id=topic_id,
        tiered_end=boundaries.tiered_end,
        block_start=boundaries.block_start,
        high_watermark=boundaries.high_watermark,
        pending_rows=int(rows or 0),
        pending_bytes=int(byte_size or 0),
        pending_split_files=int(split_files or 0),
        eligible_rows=int(aged_rows or 0),
        eligible_bytes=int(aged_bytes or 0),
        oldest_ms=oldest_ms,
        segments=segments,
        paused_since_ms=orders.paused_ms,
        triggered_ms=triggered_ms,
        parked=parked,
    )


def _source(topic_ids: Sequence[TopicId], cutoffs: Mapping[TopicId, int]) -> Rows:
    return Rows(_TOPIC, [(topic_id, cutoffs[topic_id]) for topic_id in topic_ids])
