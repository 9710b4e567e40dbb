"""Where the pipeline stands with topics, for people."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from stratalog.control.keys import partition_key
from stratalog.control.ledger import Ledger
from stratalog.control.log.model import WriteTier
from stratalog.control.pipeline.aged import read_cutoffs
from stratalog.control.pipeline.model import ParkedUnit, TierStatus
from stratalog.control.pipeline.pending import Pending, PendingWalk, count_pending
from stratalog.control.pipeline.topic_orders import TopicOrders, read_orders
from stratalog.control.sql.database import Connection, Row, Rows, as_uuid, shape
from stratalog.ids import Offset, PartitionIndex, TopicId

_GROUP = 16
"""Topics whose segments are counted with one statement: it must end before its time is over."""

_TOPIC = shape(topic_id="uuid", cutoff_ms="bigint")
_TOPIC_ID = shape(topic_id="uuid")
_BOUNDARIES = (
    "SELECT p.topic_id, p.partition, p.remote_end, p.block_start, h.high_watermark, r.cutoff_ms,"
    f" CASE WHEN p.write_tier = '{WriteTier.BLOCK.value}'"
    " THEN COALESCE(p.last_stable, h.high_watermark) ELSE 0 END FROM {rows}"
    " JOIN topics t ON t.topic_id = r.topic_id AND t.deleted_ms IS NULL"
    " JOIN partitions p ON p.topic_id = r.topic_id"
    " JOIN heads h ON h.topic_id = p.topic_id AND h.partition = p.partition"
    " ORDER BY p.topic_id, p.partition"
)
_SEGMENTS = "SELECT COUNT(*) FROM segments s WHERE s.topic_id = r.topic_id AND s.chained"
_PARKED = (
    "SELECT c.topic_id, c.partition, c.attempts, c.error, c.parked_ms FROM {rows}"
    " JOIN claims c ON c.topic_id = r.topic_id AND c.parked_ms IS NOT NULL"
    " ORDER BY c.topic_id, c.partition"
)


class Boundaries(NamedTuple):
    tiered_end: dict[PartitionIndex, Offset]
    block_start: dict[PartitionIndex, Offset]
    high_watermark: dict[PartitionIndex, Offset]


class TierStatusOperations(Ledger):
    async def tier_status(self, ages_ms: Mapping[TopicId, int]) -> list[TierStatus]:
        """Of those of the topics that exist, by id. Eligible is what has aged, also in topics that
        are paused and partitions that are parked."""
        return await self._database.read(partial(_read, ages_ms=ages_ms))


async def _read(connection: Connection, ages_ms: Mapping[TopicId, int]) -> list[TierStatus]:
    orders = await read_orders(connection, ages_ms)
    cutoffs = await read_cutoffs(connection, ages_ms, orders)
    rows = await connection.fetch(_BOUNDARIES, rows=_source(cutoffs))
    boundaries = _boundaries(rows)
    parked = await _parked(connection, cutoffs)
    pending = await count_pending(connection, list(_walks(rows)))
    segments = await _segments(connection, sorted(boundaries))
    return [
        _status(
            topic_id,
            boundaries[topic_id],
            pending.get(topic_id, Pending()),
            count,
            orders.get(topic_id, TopicOrders()),
            parked.get(topic_id, ()),
        )
        for topic_id, count in segments.items()
    ]


def _boundaries(rows: Iterable[Row]) -> dict[TopicId, Boundaries]:
    found: dict[TopicId, Boundaries] = defaultdict(lambda: Boundaries({}, {}, {}))
    for row in rows:
        topic_id, index = partition_key(row)
        for column, value in zip(found[topic_id], row[2:5], strict=True):
            column[index] = Offset(value)
    return found


def _walks(rows: Iterable[Row]) -> Iterator[PendingWalk]:
    for row in rows:
        _, _, _, block_start, high_watermark, cutoff_ms, aged_end = row
        if block_start < high_watermark:
            yield PendingWalk(partition_key(row), block_start, aged_end, cutoff_ms)


async def _segments(connection: Connection, topic_ids: Sequence[TopicId]) -> dict[TopicId, int]:
    """How many are chained, by topic, in the order of the topics."""
    found: dict[TopicId, int] = {}
    for i in range(0, len(topic_ids), _GROUP):
        group = topic_ids[i : i + _GROUP]
        source = Rows(_TOPIC_ID, [(topic_id,) for topic_id in group])
        counts = await connection.fetch_each(_SEGMENTS, source)
        found |= {topic_id: count for topic_id, [(count,)] in zip(group, counts, strict=True)}
    return found


async def _parked(
    connection: Connection, cutoffs: Mapping[TopicId, int]
) -> dict[TopicId, list[ParkedUnit]]:
    found: dict[TopicId, list[ParkedUnit]] = defaultdict(list)
    for row in await connection.fetch(_PARKED, rows=_source(cutoffs)):
        _, _, attempts, error, parked_ms = row
        unit = ParkedUnit(partition_key(row), attempts, error or "", parked_ms)
        found[TopicId(as_uuid(row[0]))].append(unit)
    return found


def _status(
    topic_id: TopicId,
    boundaries: Boundaries,
    pending: Pending,
    segments: int,
    orders: TopicOrders,
    parked: Sequence[ParkedUnit],
) -> TierStatus:
    triggered_ms, oldest_ms = orders.triggered_ms, pending.oldest_ms
    if triggered_ms is not None and (oldest_ms is None or oldest_ms > triggered_ms):
        # All that it asked for is done.
        triggered_ms = None
    return TierStatus(
        topic_id=topic_id,
        tiered_end=boundaries.tiered_end,
        block_start=boundaries.block_start,
        high_watermark=boundaries.high_watermark,
        pending_rows=pending.rows,
        pending_bytes=pending.bytes,
        pending_split_files=len(pending.split_files),
        eligible_rows=pending.aged_rows,
        eligible_bytes=pending.aged_bytes,
        oldest_ms=oldest_ms,
        segments=segments,
        paused_since_ms=orders.paused_ms,
        triggered_ms=triggered_ms,
        parked=parked,
    )


def _source(cutoffs: Mapping[TopicId, int]) -> Rows:
    return Rows(_TOPIC, list(cutoffs.items()))
