"""Where the leader epochs of partitions begin and end. They outlive the records written in them."""

from collections.abc import Sequence

from stratalog.control.keys import partition_rows
from stratalog.control.ledger import Ledger
from stratalog.control.log.model import EpochEnd, EpochQuery, PartitionState
from stratalog.control.log.partitions import read_states
from stratalog.control.segments.model import EpochStart
from stratalog.control.sql.database import Connection, Row, as_uuid
from stratalog.ids import (
    NO_EPOCH,
    NO_OFFSET,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    TopicId,
    TopicPartition,
)


class EpochOperations(Ledger):
    async def epoch_ends(self, queries: Sequence[EpochQuery]) -> list[EpochEnd | None]:
        """For each query where its epoch ended, or None if there is no such partition."""
        return await self._database.read(lambda connection: _ends(connection, queries))

    async def epochs(self, partition: TopicPartition) -> list[EpochStart]:
        """All leader epochs of a partition, in order, for the leader-epoch checkpoint."""
        rows = await self._database.read(
            lambda connection: connection.fetch(
                "SELECT e.leader_epoch, e.start_offset FROM epochs e"
                " JOIN topics t ON t.topic_id = e.topic_id AND t.deleted_ms IS NULL"
                " WHERE e.topic_id = $1 AND e.partition = $2 ORDER BY e.leader_epoch",
                *partition,
            )
        )
        return [EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in rows]


async def _ends(connection: Connection, queries: Sequence[EpochQuery]) -> list[EpochEnd | None]:
    partitions = list({query.partition for query in queries})
    states = await read_states(connection, partitions)
    rows = await connection.fetch(
        "SELECT e.topic_id, e.partition, e.leader_epoch, e.start_offset FROM {rows}"
        " JOIN epochs e ON e.topic_id = r.topic_id AND e.partition = r.partition"
        " ORDER BY e.leader_epoch",
        rows=partition_rows(partitions),
    )
    starts = _by_partition(rows)
    return [
        None
        if (state := states.get(query.partition)) is None
        else end_of_epoch(state, starts.get(query.partition, []), query.epoch)
        for query in queries
    ]


def end_of_epoch(state: PartitionState, starts: Sequence[tuple[int, int]], asked: int) -> EpochEnd:
    """The end of the largest epoch that is not above the asked one. `starts` rise.

    The rules are those of Kafka's leader-epoch cache: the current epoch ends where the log does,
    an epoch above it is not known, and one below the first ends where the first begins.
    """
    if asked < 0 or asked > state.leader_epoch:
        return EpochEnd(state.leader_epoch, NO_EPOCH, NO_OFFSET)
    if asked == state.leader_epoch:
        return EpochEnd(state.leader_epoch, LeaderEpoch(asked), state.high_watermark)
    floor = max((epoch for epoch, _ in starts if epoch <= asked), default=asked)
    end = next((start for epoch, start in starts if epoch > asked), state.high_watermark)
    return EpochEnd(state.leader_epoch, LeaderEpoch(floor), Offset(end))


def _by_partition(rows: Sequence[Row]) -> dict[TopicPartition, list[tuple[int, int]]]:
    starts: dict[TopicPartition, list[tuple[int, int]]] = {}
    for topic_id, partition, epoch, start_offset in rows:
        key = TopicPartition(TopicId(as_uuid(topic_id)), PartitionIndex(partition))
        starts.setdefault(key, []).append((epoch, start_offset))
    return starts
