"""The offsets of partitions, each answer from one snapshot."""

from collections.abc import Sequence

from stratalog.control.keys import partition_key, partition_rows
from stratalog.control.ledger import Ledger
from stratalog.control.log.model import PartitionState, WriteTier
from stratalog.control.sql.database import Connection, Row, as_uuid
from stratalog.ids import LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition

STATE_COLUMNS = (
    "h.topic_id, h.partition, p.log_start, p.remote_end, p.block_start,"
    " COALESCE(p.block_end, h.high_watermark), h.high_watermark,"
    " COALESCE(p.last_stable, h.high_watermark), p.write_tier, h.leader_epoch, h.size_bytes,"
    " h.last_commit_ms, p.migrating_since_ms IS NOT NULL"
)
_PARTS = (
    " JOIN partitions p ON p.topic_id = h.topic_id AND p.partition = h.partition"
    " JOIN topics t ON t.topic_id = h.topic_id AND t.deleted_ms IS NULL"
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
            lambda connection: connection.fetch(
                f"SELECT {STATE_COLUMNS} FROM heads h{_PARTS}"
                " WHERE h.topic_id = $1 ORDER BY h.partition",
                topic_id,
            )
        )
        return [partition_state(row) for row in rows]

    async def high_watermarks(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Offset]:
        rows = await self._database.read(
            lambda connection: connection.fetch(
                "SELECT h.topic_id, h.partition, h.high_watermark FROM {rows}"
                " JOIN heads h ON h.topic_id = r.topic_id AND h.partition = r.partition"
                " JOIN topics t ON t.topic_id = h.topic_id AND t.deleted_ms IS NULL",
                rows=partition_rows(wanted),
            )
        )
        return {partition_key(row): Offset(row[2]) for row in rows}


async def read_states(
    connection: Connection, wanted: Sequence[TopicPartition]
) -> dict[TopicPartition, PartitionState]:
    rows = await connection.fetch(
        f"SELECT {STATE_COLUMNS} FROM {{rows}}"
        f" JOIN heads h ON h.topic_id = r.topic_id AND h.partition = r.partition{_PARTS}",
        rows=partition_rows(set(wanted)),
    )
    return {partition_key(row): partition_state(row) for row in rows}


async def lock_heads(connection: Connection, wanted: Sequence[TopicPartition]) -> list[Row]:
    """Lock the heads in key order, as everybody does, and return them as they are now."""
    return await connection.fetch(
        "SELECT h.topic_id, h.partition, h.high_watermark, h.last_commit_ms, h.leader_epoch"
        " FROM {rows} JOIN heads h ON h.topic_id = r.topic_id AND h.partition = r.partition"
        " ORDER BY h.topic_id, h.partition {for_update_of_h}",
        rows=partition_rows(sorted(set(wanted))),
    )


def partition_state(row: Row) -> PartitionState:
    (
        topic_id, partition, log_start, remote_end, block_start, block_end, high_watermark,
        last_stable, write_tier, leader_epoch, size_bytes, last_commit_ms, migrating,
    ) = row  # fmt: skip
    return PartitionState(
        topic_id=TopicId(as_uuid(topic_id)),
        partition=PartitionIndex(partition),
        log_start=Offset(log_start),
        remote_end=Offset(remote_end),
        block_start=Offset(block_start),
        block_end=Offset(block_end),
        high_watermark=Offset(high_watermark),
        last_stable=Offset(last_stable),
        write_tier=WriteTier(write_tier),
        leader_epoch=LeaderEpoch(leader_epoch),
        size_bytes=size_bytes,
        last_commit_ms=last_commit_ms,
        migrating=bool(migrating),
    )
