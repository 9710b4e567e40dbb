"""`take_snapshot`: where whole ranges of partitions live, kept readable by a lease.

The lease is committed first, and the snapshot is read afterwards. Every object in the snapshot was
alive after the lease's start, so its mark, if it ever gets one, is later than that, and the object
outlives the lease. The other way round, an object could be seen, be marked and then be deleted,
because the lease began only after the mark.

All ranges are answered by a handful of statements, whatever their number.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from stratalog.control.log.model import BATCHES, COORDINATES, Coordinates, PartitionState
from stratalog.control.log.partitions import read_states
from stratalog.control.scans.leases import LeaseOperations
from stratalog.control.scans.model import EARLIEST, LATEST, ScannedPartition, ScanSnapshot, ScanWish
from stratalog.control.segments.model import SEGMENT, Segment
from stratalog.control.sql.database import Connection, Row, Shape
from stratalog.control.sql.table import rows_from
from stratalog.errors import StratalogError
from stratalog.ids import Offset

_START = BATCHES.shape("topic_id", "partition", first_offset="bigint")
_RANGE = BATCHES.shape("topic_id", "partition", "last_offset", first_offset="bigint")

# Both rows and chained segments follow each other by their last offsets, and the one that ends
# first serves an offset. So the last one of a range is the first that does not end before it.
# Looked up by the index, it spares reading all that comes after the range.
_ROWS = f"""
    SELECT {COORDINATES.columns} FROM batches
    JOIN objects ON objects.object_id = batches.object_id
    WHERE batches.topic_id = r.topic_id AND batches.partition = r.partition
        AND batches.last_offset >= r.first_offset
        AND batches.last_offset <= COALESCE((
            SELECT MIN(final.last_offset) FROM batches AS final
            WHERE final.topic_id = r.topic_id AND final.partition = r.partition
                AND final.last_offset >= r.last_offset
        ), r.last_offset)
    ORDER BY batches.last_offset
"""
_CHAINED = f"""
    SELECT {SEGMENT.columns} FROM segments
    WHERE segments.topic_id = r.topic_id AND segments.partition = r.partition
        AND segments.chained AND segments.last_offset >= r.first_offset
"""
_SEGMENTS = f"""
    {_CHAINED}
        AND segments.last_offset <= COALESCE((
            SELECT MIN(final.last_offset) FROM segments AS final
            WHERE final.topic_id = r.topic_id AND final.partition = r.partition
                AND final.chained AND final.last_offset >= r.last_offset
        ), r.last_offset)
    ORDER BY segments.last_offset
"""
_NOTED = f"{_CHAINED} AND segments.has_aborted ORDER BY segments.last_offset"


class _Range(NamedTuple):
    """A wish with its names resolved, clipped to the offsets of the partition."""

    state: PartitionState
    first_offset: Offset
    end: Offset

    @property
    def last_offset(self) -> Offset:
        return Offset(self.end - 1)

    def within(self, start: Offset, end: Offset) -> "_Range":
        """Return the part of the range that lies in one tier. It may be empty."""
        return self._replace(first_offset=max(self.first_offset, start), end=min(self.end, end))


class ScanOperations(LeaseOperations):
    async def take_snapshot(
        self, wishes: Sequence[ScanWish], *, holder: str, duration_ms: int
    ) -> ScanSnapshot:
        """Take a lease, and then, from one snapshot, all coordinates of the wished ranges.

        The lease comes first: an object that is there after its start outlives it.
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
    return {i: SEGMENT.read_all(rows) for i, rows in found.items()}


async def _rows(
    connection: Connection, ranges: Mapping[int, _Range]
) -> dict[int, Sequence[Coordinates]]:
    found = await _fetch(connection, _ROWS, _RANGE, ranges)
    return {i: COORDINATES.read_all(rows) for i, rows in found.items()}


async def _fetch(
    connection: Connection, query: str, columns: Shape, ranges: Mapping[int, _Range]
) -> dict[int, list[Row]]:
    """Fetch the answers for the ranges that are not empty, by the number of the wish."""
    looking = {i: each for i, each in ranges.items() if each.first_offset < each.end}
    if not looking:
        return {}
    answers = await connection.fetch_each(
        query,
        rows_from(
            columns, looking.values(), topic_id="state.topic_id", partition="state.partition"
        ),
    )
    return dict(zip(looking, answers, strict=True))
