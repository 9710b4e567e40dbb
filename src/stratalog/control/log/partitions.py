"""The offsets of partitions, each answer from one snapshot."""

from collections.abc import Sequence

from stratalog.control.keys import partition_key, partition_rows
from stratalog.control.ledger import Ledger
from stratalog.control.log.model import PARTITION_STATE, STABLE_END, PartitionState
from stratalog.control.sql.database import Connection, Rows, shape
from stratalog.ids import Offset, TopicId, TopicPartition

_STATES_OF_TOPIC = f"""
    SELECT {PARTITION_STATE.columns} FROM heads
    JOIN partitions ON partitions.topic_id = heads.topic_id
        AND partitions.partition = heads.partition
    JOIN topics ON topics.topic_id = heads.topic_id AND topics.deleted_ms IS NULL
    WHERE heads.topic_id = $1 ORDER BY heads.partition
"""
_STATES = f"""
    SELECT {PARTITION_STATE.columns} FROM {{rows}}
    JOIN heads ON heads.topic_id = r.topic_id AND heads.partition = r.partition
    JOIN partitions ON partitions.topic_id = heads.topic_id
        AND partitions.partition = heads.partition
    JOIN topics ON topics.topic_id = heads.topic_id AND topics.deleted_ms IS NULL
"""
_HIGH_WATERMARKS = """
    SELECT heads.topic_id, heads.partition, heads.high_watermark FROM {rows}
    JOIN heads ON heads.topic_id = r.topic_id AND heads.partition = r.partition
    JOIN topics ON topics.topic_id = heads.topic_id AND topics.deleted_ms IS NULL
"""
_MOVED = f"""
    SELECT r.topic_id, r.partition FROM {{rows}}
    LEFT JOIN topics ON topics.topic_id = r.topic_id AND topics.deleted_ms IS NULL
    LEFT JOIN heads ON heads.topic_id = topics.topic_id AND heads.partition = r.partition
    LEFT JOIN partitions ON partitions.topic_id = heads.topic_id
        AND partitions.partition = heads.partition
    WHERE partitions.topic_id IS NULL OR heads.high_watermark <> r.high_watermark
        OR {STABLE_END} <> r.last_stable OR partitions.log_start <> r.log_start
        OR heads.leader_epoch <> r.leader_epoch
"""
_LOCK_HEADS = """
    SELECT heads.topic_id, heads.partition FROM {rows}
    JOIN heads ON heads.topic_id = r.topic_id AND heads.partition = r.partition
    ORDER BY heads.topic_id, heads.partition {for_update_of heads}
"""
_BOUNDARIES = shape(
    topic_id="uuid",
    partition="integer",
    high_watermark="bigint",
    last_stable="bigint",
    log_start="bigint",
    leader_epoch="integer",
)


class PartitionOperations(Ledger):
    async def partitions(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, PartitionState]:
        """The state of those partitions that exist."""
        return await self._database.read(lambda connection: read_states(connection, wanted))

    async def topic_partitions(self, topic_id: TopicId) -> list[PartitionState]:
        """The state of all partitions of a topic, by index."""
        rows = await self._database.read(
            lambda connection: connection.fetch(_STATES_OF_TOPIC, topic_id)
        )
        return PARTITION_STATE.read_all(rows)

    async def high_watermarks(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Offset]:
        rows = await self._database.read(
            lambda connection: connection.fetch(_HIGH_WATERMARKS, rows=partition_rows(wanted))
        )
        return {partition_key(row): Offset(row[2]) for row in rows}

    async def moved(self, known: Sequence[PartitionState]) -> list[TopicPartition]:
        """Return the partitions that are gone, or whose readers would see other boundaries now.

        The database compares, so that partitions at rest cost no row of the answer.
        """
        source = Rows(
            _BOUNDARIES,
            [
                (
                    one.topic_id,
                    one.partition,
                    one.high_watermark,
                    one.last_stable,
                    one.log_start,
                    one.leader_epoch,
                )
                for one in known
            ],
        )
        rows = await self._database.read(lambda connection: connection.fetch(_MOVED, rows=source))
        return [partition_key(row) for row in rows]


async def read_states(
    connection: Connection, wanted: Sequence[TopicPartition]
) -> dict[TopicPartition, PartitionState]:
    rows = await connection.fetch(_STATES, rows=partition_rows(set(wanted)))
    return {state.topic_partition: state for state in map(PARTITION_STATE.read, rows)}


async def lock_heads(connection: Connection, wanted: Sequence[TopicPartition]) -> None:
    """Lock the heads in key order, the order of every transaction that locks several."""
    await connection.fetch(_LOCK_HEADS, rows=partition_rows(sorted(set(wanted))))
