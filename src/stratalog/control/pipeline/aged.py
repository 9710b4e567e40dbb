"""What has aged: the rows from which the pipeline plans.

Commit times grow with the offset, so the aged rows of a partition are those before its first young
one. A row has aged when its newest batch has. Most partitions have none, which the oldest batch of
their first row tells. In the others the rows are walked in
chunks, so that no more than one chunk of young rows is ever read, however many there are.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from stratalog.control.keys import partition_key
from stratalog.control.ledger import Ledger
from stratalog.control.log.model import WriteTier
from stratalog.control.log.rows import OLDEST_MS
from stratalog.control.pipeline.model import AgedPartition
from stratalog.control.pipeline.topic_orders import TopicOrders, read_orders
from stratalog.control.sql.database import Connection, Row, Rows, as_uuid, shape
from stratalog.ids import Offset, TopicId, TopicPartition

CHUNK_ROWS = 4096
_GROUP = 256
"""Partitions walked with one statement: with a full chunk each, about a second of work."""
_NO_OBJECT = UUID(int=0)

_TOPIC = shape(topic_id="uuid", cutoff_ms="bigint")
_CANDIDATES = (
    "SELECT * FROM (SELECT p.topic_id, p.partition, p.block_start, p.remote_end,"
    " COALESCE(p.last_stable, h.high_watermark) AS stable_end, r.cutoff_ms,"
    f" (SELECT {OLDEST_MS} FROM batches b WHERE b.topic_id = p.topic_id"
    " AND b.partition = p.partition AND b.last_offset >= p.block_start"
    " ORDER BY b.last_offset LIMIT 1) AS oldest_ms, COALESCE(c.attempts, 0) AS attempts,"
    " c.parked_ms, c.failed_ms, c.done_ms,"
    " c.token IS NOT NULL AND c.expires_ms > {now_ms} AS claimed"
    " FROM {rows} JOIN topics t ON t.topic_id = r.topic_id AND t.deleted_ms IS NULL"
    f" JOIN partitions p ON p.topic_id = r.topic_id AND p.write_tier = '{WriteTier.BLOCK.value}'"
    " JOIN heads h ON h.topic_id = p.topic_id AND h.partition = p.partition"
    " LEFT JOIN claims c ON c.topic_id = p.topic_id AND c.partition = p.partition"
    " WHERE p.block_start < COALESCE(p.last_stable, h.high_watermark)) w"
    " WHERE w.oldest_ms <= w.cutoff_ms ORDER BY w.topic_id, w.partition"
)
_WALK = shape(
    topic_id="uuid",
    partition="integer",
    first_offset="bigint",
    stable_end="bigint",
    cutoff_ms="bigint",
    last_object="uuid",
)
# The rows that a partition has in an object follow one another, so that an object is counted twice
# only if a chunk ends inside of it.
_CHUNK = (
    "WITH aged AS (SELECT * FROM (SELECT b.last_offset, b.byte_size, b.object_id, b.committed_ms"
    " FROM batches b WHERE b.topic_id = r.topic_id AND b.partition = r.partition"
    f" AND b.last_offset >= r.first_offset ORDER BY b.last_offset LIMIT {CHUNK_ROWS}) w"
    " WHERE w.committed_ms <= r.cutoff_ms AND w.last_offset < r.stable_end)"
    " SELECT COUNT(*), SUM(a.byte_size), MAX(a.last_offset),"
    " COUNT(DISTINCT CASE WHEN a.object_id <> r.last_object THEN a.object_id END),"
    " (SELECT z.object_id FROM aged z ORDER BY z.last_offset DESC LIMIT 1) FROM aged a"
)


@dataclass(slots=True)
class _Walk:
    """A partition whose first row has aged, and what was counted of its rows up to now."""

    partition: TopicPartition
    first_offset: int
    remote_end: int
    stable_end: int
    cutoff_ms: int
    oldest_ms: int
    attempts: int
    parked: bool
    failed_ms: int | None
    done_ms: int | None
    claimed: bool
    paused: bool
    end_offset: int
    rows: int = 0
    bytes: int = 0
    objects: int = 0
    last_object: UUID = _NO_OBJECT

    @property
    def next_chunk(self) -> Row:
        return (
            *self.partition,
            self.end_offset,
            self.stable_end,
            self.cutoff_ms,
            self.last_object,
        )

    def add(self, chunk: Row) -> bool:
        """Count a chunk, and return whether there may be another."""
        rows, byte_size, last_offset, objects, last_object = chunk
        if rows:
            self.rows += rows
            self.bytes += int(byte_size)
            self.objects += objects
            self.end_offset = last_offset + 1
            self.last_object = as_uuid(last_object)
        return bool(rows == CHUNK_ROWS)


class AgedOperations(Ledger):
    async def aged_partitions(self, ages_ms: Mapping[TopicId, int]) -> list[AgedPartition]:
        """The partitions of these topics that have rows committed longer ago than the topic's age
        and below `last_stable`, and write to blocks. Of a triggered one, all that was committed
        before the trigger has aged, too; the answer says when that was. What is claimed is answered
        like the rest, and said to be; so are those of paused topics, without a look at more than
        their first row."""
        return await self._database.read(partial(_aged, ages_ms=ages_ms))


async def read_cutoffs(
    connection: Connection, ages_ms: Mapping[TopicId, int], orders: Mapping[TopicId, TopicOrders]
) -> dict[TopicId, int]:
    """Up to which commit time the rows of a topic have aged."""
    [(now_ms,)] = await connection.fetch("SELECT {now_ms}")
    return {
        topic_id: max(now_ms - age_ms, orders.get(topic_id, TopicOrders()).triggered_ms or 0)
        for topic_id, age_ms in ages_ms.items()
    }


async def _aged(connection: Connection, ages_ms: Mapping[TopicId, int]) -> list[AgedPartition]:
    orders = await read_orders(connection, ages_ms)
    paused = {topic_id for topic_id, order in orders.items() if order.paused_ms is not None}
    cutoffs = await read_cutoffs(connection, ages_ms, orders)
    rows = await connection.fetch(_CANDIDATES, rows=Rows(_TOPIC, list(cutoffs.items())))
    walks = [_walk(row, paused) for row in rows]
    # A topic may be paused for long, and nobody needs to know how much it has by now.
    counted = [walk for walk in walks if not walk.paused]
    for i in range(0, len(counted), _GROUP):
        await _walk_all(connection, counted[i : i + _GROUP])
    return list(_found(walks, orders))


async def _walk_all(connection: Connection, walks: Sequence[_Walk]) -> None:
    walking = walks
    while walking:
        source = Rows(_WALK, [walk.next_chunk for walk in walking])
        chunks = await connection.fetch_each(_CHUNK, source)
        walking = [w for w, [chunk] in zip(walking, chunks, strict=True) if w.add(chunk)]


def _walk(row: Row, paused: Collection[TopicId]) -> _Walk:
    (
        _, _, block_start, remote_end, stable_end, cutoff_ms, oldest_ms, attempts, parked_ms,
        failed_ms, done_ms, claimed,
    ) = row  # fmt: skip
    partition = partition_key(row)
    return _Walk(
        partition=partition,
        first_offset=block_start,
        remote_end=remote_end,
        stable_end=stable_end,
        cutoff_ms=cutoff_ms,
        oldest_ms=oldest_ms,
        attempts=attempts,
        parked=parked_ms is not None,
        failed_ms=failed_ms,
        done_ms=done_ms,
        claimed=bool(claimed),
        paused=partition.topic_id in paused,
        end_offset=block_start,
    )


def _found(
    walks: Iterable[_Walk], orders: Mapping[TopicId, TopicOrders]
) -> Iterable[AgedPartition]:
    for walk in walks:
        order = orders.get(walk.partition.topic_id, TopicOrders())
        # The first row may reach into an open transaction, or to batches that are young.
        if walk.rows or walk.paused:
            yield AgedPartition(
                topic_id=walk.partition.topic_id,
                partition=walk.partition.partition,
                first_offset=Offset(walk.first_offset),
                end_offset=Offset(walk.end_offset),
                remote_end=Offset(walk.remote_end),
                rows=walk.rows,
                bytes=walk.bytes,
                objects=walk.objects,
                oldest_ms=walk.oldest_ms,
                attempts=walk.attempts,
                parked=walk.parked,
                failed_ms=walk.failed_ms,
                done_ms=walk.done_ms,
                claimed=walk.claimed,
                triggered_ms=order.triggered_ms,
                paused=walk.paused,
            )
