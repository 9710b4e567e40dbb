"""The progress of the pipeline with topics, for people."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from stratalog.control.ledger import Ledger
from stratalog.control.log.model import HEADS, PARTITIONS, STABLE_END, WriteTier
from stratalog.control.pipeline.aged import read_cutoffs
from stratalog.control.pipeline.model import PARKED_UNIT, ParkedUnit, TierStatus, TopicOrders
from stratalog.control.pipeline.pending import Pending, PendingCount, count_pending
from stratalog.control.pipeline.topic_orders import read_orders
from stratalog.control.sql.database import Connection, Rows
from stratalog.control.sql.table import Expression, Selection
from stratalog.ids import Offset, TopicId, TopicPartition

_GROUP = 16
"""Topics whose segments are counted with one statement: it must end before its time is over."""

_TOPIC = PARTITIONS.shape("topic_id", cutoff_ms="bigint")
_TOPIC_ID = PARTITIONS.shape("topic_id")
_SEGMENTS = """
    SELECT COUNT(*) FROM segments WHERE segments.topic_id = r.topic_id AND segments.chained
"""
_PARKED = f"""
    SELECT {PARKED_UNIT.columns} FROM {{rows}}
    JOIN claims ON claims.topic_id = r.topic_id AND claims.parked_ms IS NOT NULL
    ORDER BY claims.topic_id, claims.partition
"""


class Boundaries(NamedTuple):
    """The boundaries of a partition, with the limits of its aged rows."""

    partition: TopicPartition
    remote_end: Offset
    block_start: Offset
    high_watermark: Offset
    cutoff_ms: int
    aged_end: Offset
    """Rows that do not end before this have not aged, however old they are."""


_BOUNDARIES = Selection(
    Boundaries,
    PARTITIONS,
    HEADS,
    partition=Selection(TopicPartition, PARTITIONS),
    cutoff_ms=Expression("r.cutoff_ms", "bigint"),
    aged_end=Expression(
        f"CASE WHEN partitions.write_tier = '{WriteTier.BLOCK.value}' THEN {STABLE_END} ELSE 0 END",
        "bigint",
    ),
)
_READ_BOUNDARIES = f"""
    SELECT {_BOUNDARIES.columns} FROM {{rows}}
    JOIN topics ON topics.topic_id = r.topic_id AND topics.deleted_ms IS NULL
    JOIN partitions ON partitions.topic_id = r.topic_id
    JOIN heads ON heads.topic_id = partitions.topic_id AND heads.partition = partitions.partition
    ORDER BY partitions.topic_id, partitions.partition
"""


class TierStatusOperations(Ledger):
    async def tier_status(self, ages_ms: Mapping[TopicId, int]) -> list[TierStatus]:
        """Return the status of the topics that exist, by id. Aged rows are eligible, also in topics
        that are paused and partitions that are parked."""
        return await self._database.read(partial(_read, ages_ms=ages_ms))


async def _read(connection: Connection, ages_ms: Mapping[TopicId, int]) -> list[TierStatus]:
    orders = await read_orders(connection, ages_ms)
    cutoffs = await read_cutoffs(connection, ages_ms, orders)
    rows = await connection.fetch(_READ_BOUNDARIES, rows=_source(cutoffs))
    boundaries: dict[TopicId, list[Boundaries]] = defaultdict(list)
    for each in _BOUNDARIES.read_all(rows):
        boundaries[each.partition.topic_id].append(each)
    parked = await _parked(connection, cutoffs)
    pending = await count_pending(connection, list(_unconverted(boundaries)))
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


def _unconverted(boundaries: Mapping[TopicId, Sequence[Boundaries]]) -> Iterator[PendingCount]:
    for each in chain.from_iterable(boundaries.values()):
        if each.block_start < each.high_watermark:
            yield PendingCount(each.partition, each.block_start, each.aged_end, each.cutoff_ms)


async def _segments(connection: Connection, topic_ids: Sequence[TopicId]) -> dict[TopicId, int]:
    """Count the chained segments of each topic, in the order of the topics."""
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
    for unit in PARKED_UNIT.read_all(await connection.fetch(_PARKED, rows=_source(cutoffs))):
        found[unit.partition.topic_id].append(unit)
    return found


def _status(
    topic_id: TopicId,
    boundaries: Sequence[Boundaries],
    pending: Pending,
    segments: int,
    orders: TopicOrders,
    parked: Sequence[ParkedUnit],
) -> TierStatus:
    triggered_ms, oldest_ms = orders.triggered_ms, pending.oldest_ms
    if triggered_ms is not None and (oldest_ms is None or oldest_ms > triggered_ms):
        # Nothing older than the trigger is left.
        triggered_ms = None
    return TierStatus(
        topic_id=topic_id,
        tiered_end={each.partition.partition: each.remote_end for each in boundaries},
        block_start={each.partition.partition: each.block_start for each in boundaries},
        high_watermark={each.partition.partition: each.high_watermark for each in boundaries},
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
