"""Retention: the oldest rows of a partition go when they are too old or too many."""

from collections.abc import Sequence
from typing import NamedTuple

from stratalog.control.database import Connection
from stratalog.control.operations import Operations
from stratalog.control.partitions import read_states
from stratalog.control.removal import (
    PartitionMovedError,
    Trim,
    apply_trims,
    remove_rows_below_start,
)
from stratalog.ids import Offset, TopicPartition


class OldRow(NamedTuple):
    """As much of a row as retention cares about."""

    last_offset: int
    byte_size: int
    max_timestamp: int
    committed_ms: int

    @property
    def timestamp(self) -> int:
        """Records without a time are as old as their commit."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.committed_ms


class RetentionOperations(Operations):
    async def enforce_retention(
        self,
        partition: TopicPartition,
        *,
        retention_ms: int | None,
        retention_bytes: int | None,
        max_rows: int,
    ) -> int:
        removed = await self._remove(partition, max_rows)
        if removed == max_rows:
            return removed
        trim = await self._database.read(
            lambda connection: _plan(
                connection, partition, retention_ms, retention_bytes, max_rows - removed
            )
        )
        if trim is None:
            return removed
        try:
            await self._database.write(lambda connection: apply_trims(connection, [trim]))
        except PartitionMovedError:
            return removed
        return removed + await self._remove(partition, max_rows - removed)

    async def _remove(self, partition: TopicPartition, max_rows: int) -> int:
        return await self._database.write(
            lambda connection: remove_rows_below_start(connection, partition, max_rows=max_rows)
        )


def count_expired(
    rows: Sequence[OldRow],
    *,
    size_bytes: int,
    now_ms: int,
    retention_ms: int | None,
    retention_bytes: int | None,
) -> int:
    """How many of the oldest rows go. `rows` begin at the partition's start, in offset order.

    By time, up to the first row that is young enough, whatever comes after it. By size, as long as
    what remains is no less than `retention_bytes`.
    """
    by_time = by_size = 0
    if retention_ms is not None:
        for row in rows:
            if row.timestamp >= now_ms - retention_ms:
                break
            by_time += 1
    if retention_bytes is not None:
        for row in rows:
            size_bytes -= row.byte_size
            if size_bytes < retention_bytes:
                break
            by_size += 1
    return max(by_time, by_size)


async def _plan(
    connection: Connection,
    partition: TopicPartition,
    retention_ms: int | None,
    retention_bytes: int | None,
    max_rows: int,
) -> Trim | None:
    state = (await read_states(connection, [partition])).get(partition)
    # What lies below the block tier is older and has to go first.
    if state is None or state.log_start < state.block_start:
        return None
    [(now_ms,)] = await connection.fetch("SELECT {now_ms}")
    # Mostly nothing is due, and one row tells.
    for limit in (1, max_rows):
        rows = await _oldest(connection, partition, state.block_start, limit)
        expired = count_expired(
            rows,
            size_bytes=state.size_bytes,
            now_ms=now_ms,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
        )
        if not expired:
            return None
    log_start = Offset(rows[expired - 1].last_offset + 1)
    return Trim(state, log_start, log_start, sum(row.byte_size for row in rows[:expired]))


async def _oldest(
    connection: Connection, partition: TopicPartition, block_start: Offset, limit: int
) -> list[OldRow]:
    rows = await connection.fetch(
        "SELECT last_offset, byte_size, max_timestamp, committed_ms FROM batches"
        " WHERE topic_id = $1 AND partition = $2 AND last_offset >= $3"
        " ORDER BY last_offset LIMIT $4",
        *partition,
        block_start,
        limit,
    )
    return [OldRow(*row) for row in rows]
