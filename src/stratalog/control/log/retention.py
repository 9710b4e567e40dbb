"""Retention: the oldest segments and rows of a partition go when they are too old or too many."""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from stratalog.control.ledger import Ledger
from stratalog.control.log.errors import PartitionMovedError
from stratalog.control.log.model import BATCHES, PartitionState
from stratalog.control.log.partitions import read_states
from stratalog.control.log.trims import Trim, apply_trims, remove_rows_below_start
from stratalog.control.segments.model import SEGMENTS
from stratalog.control.sql.database import Connection
from stratalog.control.sql.table import Selection
from stratalog.ids import Offset, TopicPartition


class Limits(NamedTuple):
    retention_ms: int | None
    retention_bytes: int | None


class Stretch(NamedTuple):
    """The parts of a segment or a row that retention looks at."""

    last_offset: int
    size_bytes: int
    max_timestamp: int
    known_since_ms: int

    @property
    def timestamp(self) -> int:
        """Records without a time are as old as their commit, or as our knowledge of them."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.known_since_ms


_OF_SEGMENT = Selection(Stretch, SEGMENTS, known_since_ms=SEGMENTS["added_ms"])
_OF_ROW = Selection(
    Stretch, BATCHES, size_bytes=BATCHES["byte_size"], known_since_ms=BATCHES["committed_ms"]
)


class RetentionOperations(Ledger):
    async def enforce_retention(
        self,
        partition: TopicPartition,
        *,
        retention_ms: int | None,
        retention_bytes: int | None,
        max_rows: int,
    ) -> int:
        """Delete up to `max_rows` segments and rows that are too old or too many; return how many.

        Segments go first, because they are older: they are unchained, and `doomed_segments` takes
        it from there.

        Rows that an interrupted deletion left behind go first, also without any limit set, so
        every partition wants a call now and then.
        """
        limits = Limits(retention_ms, retention_bytes)
        removed = await self._remove(partition, max_rows)
        with suppress(PartitionMovedError):
            # Above the segments there may be rows to go, and above young ones that were too many
            # there may be others that are too old.
            while removed < max_rows:
                left = max_rows - removed
                trim = await self._plan(partition, limits, left)
                if trim is None:
                    break
                removed += await self._apply(trim, left)
        return removed

    async def _plan(self, partition: TopicPartition, limits: Limits, max_rows: int) -> Trim | None:
        return await self._database.read(
            lambda connection: _plan(connection, partition, limits, max_rows)
        )

    async def _apply(self, trim: Trim, max_rows: int) -> int:
        unchained = await self._database.write(lambda connection: apply_trims(connection, [trim]))
        if trim.segments_end is not None:
            return unchained
        return await self._remove(trim.state.topic_partition, max_rows)

    async def _remove(self, partition: TopicPartition, max_rows: int) -> int:
        return await self._database.write(
            lambda connection: remove_rows_below_start(connection, partition, max_rows=max_rows)
        )


def count_expired(
    oldest: Sequence[Stretch], *, size_bytes: int, now_ms: int, limits: Limits
) -> int:
    """How many of the oldest go. They begin at the partition's start, in offset order.

    By time, up to the first that is young enough, whatever comes after it. By size, as long as the
    rest of `size_bytes`, which is the whole partition's, is no less than the limit.
    """
    by_time = by_size = 0
    if limits.retention_ms is not None:
        for stretch in oldest:
            if stretch.timestamp >= now_ms - limits.retention_ms:
                break
            by_time += 1
    if limits.retention_bytes is not None:
        for stretch in oldest:
            size_bytes -= stretch.size_bytes
            if size_bytes < limits.retention_bytes:
                break
            by_size += 1
    return max(by_time, by_size)


async def _plan(
    connection: Connection, partition: TopicPartition, limits: Limits, max_rows: int
) -> Trim | None:
    state = (await read_states(connection, [partition])).get(partition)
    if state is None:
        return None
    [(now_ms,)] = await connection.fetch("SELECT {now_ms}")
    # Mostly nothing is due, and the oldest tells.
    for limit in (1, max_rows):
        segments = await _oldest_segments(connection, state, limit)
        oldest = segments or await _oldest_rows(connection, state, limit)
        count = _count_due(oldest, state, now_ms, limits)
        if not count:
            return None
    return _trim(state, oldest[:count], in_segments=bool(segments))


def _count_due(
    oldest: Sequence[Stretch], state: PartitionState, now_ms: int, limits: Limits
) -> int:
    # A broker that knew nothing of segments left them behind when it moved the start.
    left_behind = sum(stretch.last_offset < state.log_start for stretch in oldest)
    expired = count_expired(oldest, size_bytes=state.size_bytes, now_ms=now_ms, limits=limits)
    return max(left_behind, expired)


def _trim(state: PartitionState, due: Sequence[Stretch], *, in_segments: bool) -> Trim:
    end = Offset(due[-1].last_offset + 1)
    log_start = max(state.log_start, end)
    if in_segments:
        return Trim(state, log_start, state.block_start, 0, segments_end=end)
    return Trim(state, log_start, end, sum(row.size_bytes for row in due))


async def _oldest_segments(
    connection: Connection, state: PartitionState, limit: int
) -> list[Stretch]:
    rows = await connection.fetch(
        f"""
        SELECT {_OF_SEGMENT.columns} FROM segments
        WHERE topic_id = $1 AND partition = $2 AND chained ORDER BY last_offset LIMIT $3
        """,
        *state.topic_partition,
        limit,
    )
    return _OF_SEGMENT.read_all(rows)


async def _oldest_rows(connection: Connection, state: PartitionState, limit: int) -> list[Stretch]:
    # Segments below the block tier are older and have to go first.
    if state.log_start < state.block_start:
        return []
    rows = await connection.fetch(
        f"""
        SELECT {_OF_ROW.columns} FROM batches
        WHERE topic_id = $1 AND partition = $2 AND last_offset >= $3 ORDER BY last_offset LIMIT $4
        """,
        *state.topic_partition,
        state.block_start,
        limit,
    )
    return _OF_ROW.read_all(rows)
