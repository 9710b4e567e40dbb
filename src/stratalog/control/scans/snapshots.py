"""`take_snapshot`: where whole ranges of partitions live, kept readable by a lease.

The lease is committed first, and the snapshot is read afterwards. Whatever the snapshot sees was
alive after the lease's start, so it is marked later than that, if ever, and what is marked later
outlives the lease. The other way round, something could be seen, be marked and then be deleted,
because the lease began only after the mark.

All ranges are answered by a handful of statements, whatever their number.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from stratalog.control.log.model import Coordinates, PartitionState
from stratalog.control.log.partitions import read_states
from stratalog.control.log.reads import ROW_COLUMNS, coordinates_of
from stratalog.control.scans.leases import LeaseOperations
from stratalog.control.scans.model import EARLIEST, LATEST, ScannedPartition, ScanSnapshot, ScanWish
from stratalog.control.segments.model import Segment
from stratalog.control.segments.rows import SEGMENT_COLUMNS, segment_of
from stratalog.control.sql.database import Connection, Row, Rows, Shape, shape
from stratalog.errors import StratalogError
from stratalog.ids import Offset

_START = shape(topic_id="uuid", partition="integer", first_offset="bigint")
_RANGE = shape(topic_id="uuid", partition="integer", first_offset="bigint", last_offset="bigint")

# Both rows and chained segments follow each other by their last offsets, and whoever ends first
# serves an offset. So the last one of a range is the first that does not end before it. Looked up
# by the index, it spares reading all that comes after the range.
_ROWS = (
    f"SELECT {ROW_COLUMNS} FROM batches b JOIN objects o ON o.object_id = b.object_id"
    " WHERE b.topic_id = r.topic_id AND b.partition = r.partition"
    " AND b.last_offset >= r.first_offset AND b.last_offset <= COALESCE("
    "(SELECT MIN(e.last_offset) FROM batches e WHERE e.topic_id = r.topic_id"
    " AND e.partition = r.partition AND e.last_offset >= r.last_offset), r.last_offset)"
    " ORDER BY b.last_offset"
)
_CHAINED = (
    f"SELECT {SEGMENT_COLUMNS} FROM segments s WHERE s.topic_id = r.topic_id"
    " AND s.partition = r.partition AND s.chained AND s.last_offset >= r.first_offset"
)
_SEGMENTS = (
    f"{_CHAINED} AND s.last_offset <= COALESCE("
    "(SELECT MIN(e.last_offset) FROM segments e WHERE e.topic_id = r.topic_id"
    " AND e.partition = r.partition AND e.chained AND e.last_offset >= r.last_offset),"
    " r.last_offset) ORDER BY s.last_offset"
)
_NOTED = f"{_CHAINED} AND s.has_aborted ORDER BY s.last_offset"


class _Range(NamedTuple):
    """A wish with its names resolved, clipped to what is there."""

    state: PartitionState
    start: Offset
    end: Offset

    def within(self, start: Offset, end: Offset) -> "_Range":
        """What of the range lies in one tier. It may be empty."""
        return self._replace(start=max(self.start, start), end=min(self.end, end))


class ScanOperations(LeaseOperations):
    async def take_snapshot(
        self, wishes: Sequence[ScanWish], *, holder: str, duration_ms: int
    ) -> ScanSnapshot:
        """Take a lease, and then, from one snapshot, all coordinates of the wished ranges.

        The lease comes first: what is there after its start is not deleted before its end.
        """
        lease = await self.take_lease(holder, duration_ms=duration_ms)
        try:
            partitions = await self._database.read(partial(_scan, wishes=wishes))
        except BaseException:
            # Otherwise it would keep the janitor from its work until it expires.
            with suppress(StratalogError):
                await self.release_lease(lease.lease_id)
            raise
        return ScanSnapshot(lease=lease, partitions=partitions)


async def _scan(
    connection: Connection, wishes: Sequence[ScanWish]
) -> list[ScannedPartition | None]:
    states = await read_states(connection, [wish.partition for wish in wishes])
    ranges = {
        i: _resolve(wish, states[wish.partition])
        for i, wish in enumerate(wishes)
        if wish.partition in states
    }
    remote = {i: r.within(r.state.log_start, r.state.remote_end) for i, r in ranges.items()}
    blocks = {i: r.within(r.state.block_start, r.state.block_end) for i, r in ranges.items()}
    segments = await _segments(connection, _SEGMENTS, _RANGE, remote)
    noted = await _segments(connection, _NOTED, _START, remote)
    rows = await _rows(connection, blocks)
    return [
        ScannedPartition(
            state=ranges[i].state,
            pieces=[*segments.get(i, ()), *rows.get(i, ())],
            noted=noted.get(i, ()),
        )
        if i in ranges
        else None
        for i in range(len(wishes))
    ]


def _resolve(wish: ScanWish, state: PartitionState) -> _Range:
    named = {EARLIEST: state.log_start, LATEST: state.high_watermark}

    def clip(offset: Offset) -> Offset:
        return min(max(named.get(offset, offset), state.log_start), state.high_watermark)

    return _Range(state, clip(wish.start), clip(wish.end))


async def _segments(
    connection: Connection, query: str, columns: Shape, ranges: Mapping[int, _Range]
) -> dict[int, Sequence[Segment]]:
    found = await _fetch(connection, query, columns, ranges)
    return {i: [segment_of(row) for row in rows] for i, rows in found.items()}


async def _rows(
    connection: Connection, ranges: Mapping[int, _Range]
) -> dict[int, Sequence[Coordinates]]:
    found = await _fetch(connection, _ROWS, _RANGE, ranges)
    return {i: [coordinates_of(row) for row in rows] for i, rows in found.items()}


async def _fetch(
    connection: Connection, query: str, columns: Shape, ranges: Mapping[int, _Range]
) -> dict[int, list[Row]]:
    """The answers for those of the ranges that are not empty, by the number of the wish."""
    looking = {i: each for i, each in ranges.items() if each.start < each.end}
    if not looking:
        return {}
    width = len(columns.names)
    source = [
        (*each.state.topic_partition, each.start, each.end - 1)[:width] for each in looking.values()
    ]
    answers = await connection.fetch_each(query, Rows(columns, source))
    return dict(zip(looking, answers, strict=True))
