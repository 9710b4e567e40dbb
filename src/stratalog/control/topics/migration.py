"""The switch of a topic from local files to blocks, all partitions in one transaction.

Heads are locked before anything is read, so that a commit sees the old tier or the new one.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from stratalog.control.keys import partition_key, partition_rows
from stratalog.control.ledger import Ledger
from stratalog.control.log.boundaries import check_boundaries
from stratalog.control.log.model import EPOCHS, PartitionState, WriteTier
from stratalog.control.log.partitions import lock_heads, read_states
from stratalog.control.sql.database import Connection, Rows
from stratalog.control.topics.errors import MigrationRefusedError, UnknownTopicError
from stratalog.control.topics.migration_state import check_transition, migration_state
from stratalog.ids import LeaderEpoch, TopicId, kafka_base64

_OF_ROW = "WHERE partitions.topic_id = r.topic_id AND partitions.partition = r.partition"
_BEGIN = f"UPDATE partitions SET migrating_since_ms = {{now_ms}} FROM {{rows}} {_OF_ROW}"
_ABORT = f"UPDATE partitions SET migrating_since_ms = NULL FROM {{rows}} {_OF_ROW}"
_SWITCH = f"""
    UPDATE partitions
    SET write_tier = $1, block_start = heads.high_watermark, block_end = NULL,
        migrating_since_ms = NULL
    FROM {{rows}}
    JOIN heads ON heads.topic_id = r.topic_id AND heads.partition = r.partition
    {_OF_ROW}
"""
_RAISE_EPOCHS = """
    UPDATE heads SET leader_epoch = heads.leader_epoch + 1 FROM {rows}
    WHERE heads.topic_id = r.topic_id AND heads.partition = r.partition
"""
_EPOCH = EPOCHS.shape_without()
_INSERT_EPOCHS = EPOCHS.insert(_EPOCH)


class MigrationOperations(Ledger):
    async def begin_migration(self, topic_id: TopicId) -> None:
        """TIERED_ONLY to MIGRATING, all partitions. May be repeated."""
        await self._database.write(partial(_begin, topic_id=topic_id))

    async def abort_migration(self, topic_id: TopicId) -> None:
        """MIGRATING back to TIERED_ONLY, while nothing was switched. May be repeated."""
        await self._database.write(partial(_abort, topic_id=topic_id))

    async def switch_to_blocks(self, topic_id: TopicId) -> None:
        """MIGRATING to HYBRID: from here on appends go into blocks, in a new leader epoch.

        Every partition's `block_start` becomes its high watermark. May be repeated. Raises
        `MigrationRefusedError` if a partition has not begun to migrate.
        """
        await self._database.write(partial(_switch, topic_id=topic_id))


async def _begin(connection: Connection, topic_id: TopicId) -> None:
    local = _local(await _locked_states(connection, topic_id))
    if not local:
        raise _refusal(topic_id, "its appends go to blocks already")
    changing = _guarded(local, lambda state: replace(state, migrating=True))
    await connection.execute(
        _BEGIN, rows=partition_rows(state.topic_partition for state in changing)
    )


async def _abort(connection: Connection, topic_id: TopicId) -> None:
    local = _local(await _locked_states(connection, topic_id))
    if not local:
        raise _refusal(topic_id, "its appends go to blocks: the switch is done, and stays")
    changing = _guarded(local, lambda state: replace(state, migrating=False))
    await connection.execute(
        _ABORT, rows=partition_rows(state.topic_partition for state in changing)
    )


async def _switch(connection: Connection, topic_id: TopicId) -> None:
    # Without a local partition it was switched before, and this call repeats that switch.
    local = _local(await _locked_states(connection, topic_id))
    for state in local:
        if not state.migrating:
            raise _refusal(topic_id, f"partition {state.partition} has not begun to migrate")
    changing = _guarded(local, _switched)
    keys = partition_rows(state.topic_partition for state in changing)
    await connection.execute(_SWITCH, WriteTier.BLOCK.value, rows=keys)
    await connection.execute(_RAISE_EPOCHS, rows=keys)
    epochs = [
        (*state.topic_partition, state.leader_epoch + 1, state.high_watermark) for state in changing
    ]
    await connection.execute(_INSERT_EPOCHS, rows=Rows(_EPOCH, epochs))


def _switched(state: PartitionState) -> PartitionState:
    return replace(
        state,
        write_tier=WriteTier.BLOCK,
        block_start=state.high_watermark,
        block_end=state.high_watermark,
        migrating=False,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
    )


async def _locked_states(connection: Connection, topic_id: TopicId) -> list[PartitionState]:
    # The topic is locked against new partitions before its heads are known.
    topics = await connection.fetch(
        "SELECT 1 FROM topics WHERE topic_id = $1 AND deleted_ms IS NULL {for_update}", topic_id
    )
    if not topics:
        raise UnknownTopicError(f"no topic has the id {kafka_base64(topic_id)}")
    rows = await connection.fetch(
        "SELECT topic_id, partition FROM partitions WHERE topic_id = $1", topic_id
    )
    keys = sorted(map(partition_key, rows))
    await lock_heads(connection, keys)
    states = await read_states(connection, keys)
    return [states[key] for key in keys]


def _local(states: Sequence[PartitionState]) -> list[PartitionState]:
    """Partitions that were added later write to blocks from their beginning."""
    return [state for state in states if state.write_tier is WriteTier.LOCAL]


def _guarded(
    states: Sequence[PartitionState], change: Callable[[PartitionState], PartitionState]
) -> list[PartitionState]:
    """Return the partitions that the change changes, if it is allowed for all of them."""
    for state in states:
        if breaches := check_transition(state, change(state)):
            raise _refusal(
                state.topic_id,
                f"partition {state.partition} is {migration_state(state)}: {'; '.join(breaches)}",
            )
        check_boundaries(change(state), before=state)
    return [state for state in states if change(state) != state]


def _refusal(topic_id: TopicId, why: str) -> MigrationRefusedError:
    return MigrationRefusedError(f"topic {kafka_base64(topic_id)}: {why}")
