"""Dry runs: how much retention, DeleteRecords or the deletion of a topic would take away.

Nothing is changed and no lock is taken. The work is bounded, because a client may ask by changing a
config: of a partition with more rows than the bound, the answer says how much goes at least.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from stratalog.control.ledger import Ledger
from stratalog.control.log.model import BATCHES, PartitionState
from stratalog.control.log.partitions import read_states
from stratalog.control.log.retention import Limits, Stretch, count_expired
from stratalog.control.segments.model import SEGMENTS
from stratalog.control.sql.database import Connection
from stratalog.control.sql.table import Selection
from stratalog.ids import Offset, TopicPartition

MOST_ROWS = 10_000
"""Segments and rows of one partition that a dry run looks at."""

_OF_SEGMENT = Selection(Stretch, SEGMENTS, known_since_ms=SEGMENTS["added_ms"])
_OF_ROW = Selection(
    Stretch, BATCHES, size_bytes=BATCHES["byte_size"], known_since_ms=BATCHES["committed_ms"]
)
_SEGMENTS = f"""
    SELECT {_OF_SEGMENT.columns} FROM segments
    WHERE topic_id = $1 AND partition = $2 AND chained AND last_offset >= $3
    ORDER BY last_offset LIMIT $4
"""
_ROWS = f"""
    SELECT {_OF_ROW.columns} FROM batches
    WHERE topic_id = $1 AND partition = $2 AND last_offset >= $3
    ORDER BY last_offset LIMIT $4
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WouldGo:
    """The part of some partitions that would go."""

    offsets: int = 0
    """About the number of records."""
    size_bytes: int = 0
    oldest_ms: int | None = None
    """The time of the oldest segment or row, which is that of its newest record."""
    newest_ms: int | None = None
    complete: bool = True
    """False if there were more rows than a dry run looks at."""

    def __add__(self, other: "WouldGo") -> "WouldGo":
        return WouldGo(
            offsets=self.offsets + other.offsets,
            size_bytes=self.size_bytes + other.size_bytes,
            oldest_ms=min(_known(self.oldest_ms, other.oldest_ms), default=None),
            newest_ms=max(_known(self.newest_ms, other.newest_ms), default=None),
            complete=self.complete and other.complete,
        )


class DryRunOperations(Ledger):
    async def would_expire(
        self, partition: TopicPartition, *, retention_ms: int | None, retention_bytes: int | None
    ) -> WouldGo:
        """Return how much of a partition is beyond these limits now."""
        limits = Limits(retention_ms, retention_bytes)
        return await self._database.read(partial(_expired, partition=partition, limits=limits))

    async def would_go(self, partition: TopicPartition, before: Offset | None = None) -> WouldGo:
        """Return how much of a partition lies below an offset; without one, all of it."""
        return await self._database.read(partial(_below, partition=partition, before=before))


async def _expired(connection: Connection, partition: TopicPartition, limits: Limits) -> WouldGo:
    state = (await read_states(connection, [partition])).get(partition)
    if state is None:
        return WouldGo()
    [(now_ms,)] = await connection.fetch("SELECT {now_ms}")
    stretches = await _stretches(connection, state)
    count = count_expired(stretches, size_bytes=state.size_bytes, now_ms=now_ms, limits=limits)
    end = Offset(stretches[count - 1].last_offset + 1) if count else state.log_start
    return _sum(state, stretches[:count], end, complete=count < MOST_ROWS)


async def _below(
    connection: Connection, partition: TopicPartition, before: Offset | None
) -> WouldGo:
    state = (await read_states(connection, [partition])).get(partition)
    if state is None:
        return WouldGo()
    end = state.high_watermark if before is None else min(before, state.high_watermark)
    stretches = await _stretches(connection, state)
    below = [stretch for stretch in stretches if stretch.last_offset < end]
    complete = len(stretches) < MOST_ROWS or len(below) < len(stretches)
    found = _sum(state, below, end, complete=complete)
    if before is None:
        # The head knows the size of all, however many rows there are.
        return found + WouldGo(size_bytes=state.size_bytes - found.size_bytes)
    return found


async def _stretches(connection: Connection, state: PartitionState) -> list[Stretch]:
    """Return the segments and rows of a partition, in offset order, up to the bound."""
    key = state.topic_partition
    segments = await connection.fetch(_SEGMENTS, *key, state.log_start, MOST_ROWS)
    start = max(state.block_start, state.log_start)
    rows = await connection.fetch(_ROWS, *key, start, MOST_ROWS - len(segments))
    return [*_OF_SEGMENT.read_all(segments), *_OF_ROW.read_all(rows)]


def _sum(
    state: PartitionState, stretches: Sequence[Stretch], end: Offset, *, complete: bool
) -> WouldGo:
    times = [stretch.timestamp for stretch in stretches]
    return WouldGo(
        offsets=max(0, end - state.log_start),
        size_bytes=sum(stretch.size_bytes for stretch in stretches),
        oldest_ms=min(times, default=None),
        newest_ms=max(times, default=None),
        complete=complete,
    )


def _known(*times: int | None) -> Iterable[int]:
    return [time for time in times if time is not None]
