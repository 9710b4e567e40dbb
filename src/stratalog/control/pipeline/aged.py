"""Aged rows, from which the pipeline plans.

Commit times grow with the offset, so the aged rows of a partition are the rows before its first
young one. A row has aged when its newest batch has. Most partitions have no aged row, which the
oldest batch of their first row shows. In the others the rows are counted in chunks, so that no more
than one chunk of young rows is ever read, however many there are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple
from uuid import UUID

from stratalog.control.ledger import Ledger
from stratalog.control.log.model import OLDEST_MS, PARTITIONS, STABLE_END, WriteTier
from stratalog.control.pipeline.model import CLAIMS, AgedPartition, TopicOrders
from stratalog.control.pipeline.topic_orders import read_orders
from stratalog.control.sql.database import Connection, Row, Rows, as_uuid
from stratalog.control.sql.table import Expression, Selection
from stratalog.ids import Offset, TopicId, TopicPartition

CHUNK_ROWS = 4096
_GROUP = 256
"""Partitions counted with one statement: with a full chunk each, about a second of work."""
_NO_OBJECT = UUID(int=0)

_TOPIC = PARTITIONS.shape("topic_id", cutoff_ms="bigint")
_COUNTED = PARTITIONS.shape(
    "topic_id",
    "partition",
    first_offset="bigint",
    stable_end="bigint",
    cutoff_ms="bigint",
    last_object="uuid",
)
# The rows that a partition has in an object follow one another, so that an object is counted twice
# only if a chunk ends inside of it.
_CHUNK = f"""
    WITH aged AS (
        SELECT * FROM (
            SELECT last_offset, byte_size, object_id, committed_ms FROM batches
            WHERE batches.topic_id = r.topic_id AND batches.partition = r.partition
                AND batches.last_offset >= r.first_offset
            ORDER BY last_offset LIMIT {CHUNK_ROWS}
        ) AS chunk
        WHERE committed_ms <= r.cutoff_ms AND last_offset < r.stable_end
    )
    SELECT COUNT(*), SUM(byte_size), MAX(last_offset),
        COUNT(DISTINCT CASE WHEN object_id <> r.last_object THEN object_id END),
        (SELECT object_id FROM aged ORDER BY last_offset DESC LIMIT 1)
    FROM aged
"""


class _Candidate(NamedTuple):
    """A partition whose first row has aged."""

    partition: TopicPartition
    block_start: Offset
    remote_end: Offset
    stable_end: Offset
    cutoff_ms: int
    oldest_ms: int
    attempts: int
    parked: bool
    failed_ms: int | None
    done_ms: int | None
    claimed: bool


_FIRST_ROW_MS = f"""(
    SELECT {OLDEST_MS} FROM batches
    WHERE batches.topic_id = partitions.topic_id AND batches.partition = partitions.partition
        AND batches.last_offset >= partitions.block_start
    ORDER BY batches.last_offset LIMIT 1
)"""
_IS_CLAIMED = "claims.token IS NOT NULL AND claims.expires_ms > {now_ms}"
_CANDIDATE = Selection(
    _Candidate,
    PARTITIONS,
    CLAIMS,
    partition=Selection(TopicPartition, PARTITIONS),
    stable_end=Expression(f"{STABLE_END} AS stable_end", "bigint"),
    cutoff_ms=Expression("r.cutoff_ms", "bigint"),
    oldest_ms=Expression(f"{_FIRST_ROW_MS} AS oldest_ms", "bigint"),
    attempts=Expression("COALESCE(claims.attempts, 0) AS attempts", "integer"),
    parked=Expression("claims.parked_ms IS NOT NULL AS parked", "boolean"),
    claimed=Expression(f"{_IS_CLAIMED} AS claimed", "boolean"),
)
_CANDIDATES = f"""
    SELECT * FROM (
        SELECT {_CANDIDATE.columns} FROM {{rows}}
        JOIN topics ON topics.topic_id = r.topic_id AND topics.deleted_ms IS NULL
        JOIN partitions ON partitions.topic_id = r.topic_id
            AND partitions.write_tier = '{WriteTier.BLOCK.value}'
        JOIN heads ON heads.topic_id = partitions.topic_id
            AND heads.partition = partitions.partition
        LEFT JOIN claims ON claims.topic_id = partitions.topic_id
            AND claims.partition = partitions.partition
        WHERE partitions.block_start < {STABLE_END}
    ) AS candidates
    WHERE oldest_ms <= cutoff_ms ORDER BY topic_id, partition
"""


@dataclass(slots=True)
class _Count:
    """A candidate, and the count of its aged rows up to `end_offset`."""

    candidate: _Candidate
    orders: TopicOrders
    end_offset: int
    rows: int = 0
    bytes: int = 0
    objects: int = 0
    last_object: UUID = _NO_OBJECT

    @property
    def paused(self) -> bool:
        return self.orders.paused_ms is not None

    @property
    def next_chunk(self) -> Row:
        candidate = self.candidate
        return (
            *candidate.partition,
            self.end_offset,
            candidate.stable_end,
            candidate.cutoff_ms,
            self.last_object,
        )

    def add(self, chunk: Row) -> bool:
        """Count a chunk, and return True if there may be another."""
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
        """Return the partitions of these topics that write to blocks and have rows committed longer
        ago than the topic's age and below `last_stable`.

        Of a triggered topic, all rows committed before the trigger have aged, too, and the answer
        has its time. Claimed partitions and partitions of paused topics are answered like the rest
        and flagged; of paused ones only the first row is read.
        """
        return await self._database.read(partial(_aged, ages_ms=ages_ms))


async def read_cutoffs(
    connection: Connection, ages_ms: Mapping[TopicId, int], orders: Mapping[TopicId, TopicOrders]
) -> dict[TopicId, int]:
    """Return per topic the commit time up to which its rows have aged."""
    [(now_ms,)] = await connection.fetch("SELECT {now_ms}")
    return {
        topic_id: max(now_ms - age_ms, orders.get(topic_id, TopicOrders()).triggered_ms or 0)
        for topic_id, age_ms in ages_ms.items()
    }


async def _aged(connection: Connection, ages_ms: Mapping[TopicId, int]) -> list[AgedPartition]:
    orders = await read_orders(connection, ages_ms)
    cutoffs = await read_cutoffs(connection, ages_ms, orders)
    rows = await connection.fetch(_CANDIDATES, rows=Rows(_TOPIC, list(cutoffs.items())))
    counts = [
        _Count(each, orders.get(each.partition.topic_id, TopicOrders()), each.block_start)
        for each in _CANDIDATE.read_all(rows)
    ]
    # A topic may be paused for long, and the planner does not need to know how much it has by now.
    counted = [count for count in counts if not count.paused]
    for i in range(0, len(counted), _GROUP):
        await _count_all(connection, counted[i : i + _GROUP])
    return list(_found(counts))


async def _count_all(connection: Connection, counts: Sequence[_Count]) -> None:
    unfinished = counts
    while unfinished:
        source = Rows(_COUNTED, [count.next_chunk for count in unfinished])
        chunks = await connection.fetch_each(_CHUNK, source)
        unfinished = [c for c, [chunk] in zip(unfinished, chunks, strict=True) if c.add(chunk)]


def _found(counts: Iterable[_Count]) -> Iterable[AgedPartition]:
    for count in counts:
        candidate = count.candidate
        # The first row may reach into an open transaction, or to batches that are young.
        if count.rows or count.paused:
            yield AgedPartition(
                topic_id=candidate.partition.topic_id,
                partition=candidate.partition.partition,
                first_offset=candidate.block_start,
                end_offset=Offset(count.end_offset),
                remote_end=candidate.remote_end,
                rows=count.rows,
                bytes=count.bytes,
                objects=count.objects,
                oldest_ms=candidate.oldest_ms,
                attempts=candidate.attempts,
                parked=candidate.parked,
                failed_ms=candidate.failed_ms,
                done_ms=candidate.done_ms,
                claimed=candidate.claimed,
                triggered_ms=count.orders.triggered_ms,
                paused=count.paused,
            )
