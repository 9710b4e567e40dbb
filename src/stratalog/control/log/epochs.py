"""Where the leader epochs of partitions begin and end. They outlive the records written in them."""

from collections.abc import Sequence

from stratalog.control.keys import partition_rows
from stratalog.control.ledger import Ledger
from stratalog.control.log.model import EPOCHS, EpochEnd, EpochQuery, PartitionState
from stratalog.control.log.partitions import read_states
from stratalog.control.segments.model import EpochStart
from stratalog.control.sql.database import Connection, Row, as_uuid
from stratalog.control.sql.table import Selection
from stratalog.ids import (
    NO_EPOCH,
    NO_OFFSET,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    TopicId,
    TopicPartition,
)

_EPOCH_START = Selection(EpochStart, EPOCHS, epoch=EPOCHS["leader_epoch"])
_EPOCHS_OF_PARTITION = """
    FROM epochs
    JOIN topics ON topics.topic_id = epochs.topic_id AND topics.deleted_ms IS NULL
    WHERE epochs.topic_id = $1 AND epochs.partition = $2
    ORDER BY epochs.leader_epoch
"""
_EPOCHS_OF_PARTITIONS = """
    SELECT epochs.topic_id, epochs.partition, epochs.leader_epoch, epochs.start_offset
    FROM {rows}
    JOIN epochs ON epochs.topic_id = r.topic_id AND epochs.partition = r.partition
    ORDER BY epochs.leader_epoch
"""


class EpochOperations(Ledger):
    async def epoch_ends(self, queries: Sequence[EpochQuery]) -> list[EpochEnd | None]:
        """Return for each query where its epoch ended, or None if there is no such partition."""
        return await self._database.read(lambda connection: _ends(connection, queries))

    async def epochs(self, partition: TopicPartition) -> list[EpochStart]:
        """All leader epochs of a partition, in order, for the leader-epoch checkpoint."""
        rows = await self._database.read(
            lambda connection: connection.fetch(
                f"SELECT {_EPOCH_START.columns} {_EPOCHS_OF_PARTITION}", *partition
            )
        )
        return _EPOCH_START.read_all(rows)


async def _ends(connection: Connection, queries: Sequence[EpochQuery]) -> list[EpochEnd | None]:
    partitions = list({query.partition for query in queries})
    states = await read_states(connection, partitions)
    rows = await connection.fetch(_EPOCHS_OF_PARTITIONS, rows=partition_rows(partitions))
    starts = _by_partition(rows)
    return [
        None
        if (state := states.get(query.partition)) is None
        else end_of_epoch(state, starts.get(query.partition, []), query.epoch)
        for query in queries
    ]


def end_of_epoch(state: PartitionState, starts: Sequence[tuple[int, int]], asked: int) -> EpochEnd:
    """The end of the largest epoch that is not above the asked one. `starts` rise.

    The rules are taken from Kafka's leader-epoch cache: the current epoch ends where the log does,
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
