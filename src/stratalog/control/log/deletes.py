"""DeleteRecords: a client raises the start of partitions."""

from collections.abc import Mapping
from contextlib import suppress

from stratalog.control.errors import ControlUnavailableError
from stratalog.control.ledger import Ledger
from stratalog.control.log.errors import OffsetOutOfRangeError
from stratalog.control.log.model import PARTITIONS, PartitionState, RecordsDeleted
from stratalog.control.log.partitions import read_states
from stratalog.control.log.trims import Trim, apply_trims, remove_rows_below_start
from stratalog.control.sql.database import Connection, Rows
from stratalog.control.sql.optimistic import retry_outdated
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.errors import OutcomeUnknownError
from stratalog.ids import NO_OFFSET, Offset, TopicPartition, kafka_base64

_CHUNK_ROWS = 2000
_MAX_CHUNKS = 5
"""Past these the answer waits no longer; retention removes the rest."""

_CUT = PARTITIONS.shape("topic_id", "partition", "block_start", target="bigint")
_CUT_QUERY = """
    SELECT (
        SELECT SUM(batches.byte_size) FROM batches
        WHERE batches.topic_id = r.topic_id AND batches.partition = r.partition
            AND batches.last_offset >= r.block_start AND batches.last_offset < r.target
    ) AS freed_bytes, (
        SELECT batches.base_offset FROM batches
        WHERE batches.topic_id = r.topic_id AND batches.partition = r.partition
            AND batches.last_offset >= r.target
        ORDER BY batches.last_offset LIMIT 1
    ) AS first_base
"""


class DeleteOperations(Ledger):
    async def delete_records(
        self, targets: Mapping[TopicPartition, Offset]
    ) -> list[RecordsDeleted]:
        """Raise `log_start`; offset -1 means the high watermark.

        Raises `OffsetOutOfRangeError` or `UnknownTopicError` and then changes nothing.
        """
        deleted = await retry_outdated(
            lambda: self._raise_starts(targets),
            refusal="the partitions' starts keep moving: try again",
        )
        # The records are deleted by now, whatever becomes of their rows.
        with suppress(ControlUnavailableError, OutcomeUnknownError):
            for partition in targets:
                await self._remove_leftovers(partition)
        return deleted

    async def _raise_starts(self, targets: Mapping[TopicPartition, Offset]) -> list[RecordsDeleted]:
        trims = await self._database.read(lambda connection: _plan(connection, targets))
        moving = [trim for trim in trims if trim.log_start > trim.state.log_start]
        if moving:
            await self._database.write(lambda connection: apply_trims(connection, moving))
        return [_deleted(trim) for trim in trims]

    async def _remove_leftovers(self, partition: TopicPartition) -> None:
        for _ in range(_MAX_CHUNKS):
            removed = await self._database.write(
                lambda connection: remove_rows_below_start(
                    connection, partition, max_rows=_CHUNK_ROWS
                )
            )
            if removed < _CHUNK_ROWS:
                return


async def _plan(connection: Connection, targets: Mapping[TopicPartition, Offset]) -> list[Trim]:
    states = await read_states(connection, list(targets))
    wanted = {key: _target(key, offset, states.get(key)) for key, offset in targets.items()}
    source = Rows(_CUT, [(*key, states[key].block_start, target) for key, target in wanted.items()])
    cuts = await connection.fetch_each(_CUT_QUERY, source)
    return [
        _trim(states[key], target, freed_bytes or 0, first_base)
        for (key, target), [(freed_bytes, first_base)] in zip(wanted.items(), cuts, strict=True)
    ]


def _target(key: TopicPartition, offset: Offset, state: PartitionState | None) -> Offset:
    name = f"partition {key.partition} of topic {kafka_base64(key.topic_id)}"
    if state is None:
        raise UnknownTopicError(f"{name} does not exist")
    if offset == NO_OFFSET:
        return state.high_watermark
    if not 0 <= offset <= state.high_watermark:
        raise OffsetOutOfRangeError(
            f"{name}: cannot delete records before {offset}, it ends at {state.high_watermark}"
        )
    return offset


def _trim(state: PartitionState, target: Offset, freed_bytes: int, first_base: int | None) -> Trim:
    log_start = max(state.log_start, target)
    segments_end = log_start if state.log_start < state.remote_end else None
    if log_start < state.block_start:
        return Trim(state, log_start, state.block_start, 0, segments_end)
    first_row = state.block_end if first_base is None else Offset(first_base)
    block_start = max(state.block_start, first_row)
    return Trim(state, log_start, block_start, freed_bytes, segments_end)


def _deleted(trim: Trim) -> RecordsDeleted:
    return RecordsDeleted(
        topic_id=trim.state.topic_id,
        partition=trim.state.partition,
        log_start=trim.log_start,
    )
