"""The planner of scans: from a request to one snapshot of its topics, as extents in splits."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from stratalog.batch.columns import AbortedRecords
from stratalog.block.batch_index import BatchIndex
from stratalog.control.log.model import PartitionState, TimeQuery
from stratalog.control.plane import ControlPlane
from stratalog.control.scans.model import EARLIEST, LATEST, Lease, ScannedPartition, ScanSnapshot
from stratalog.errors import StratalogError
from stratalog.ids import Offset, TopicPartition
from stratalog.scan.errors import NoSuchTimeError, TopicNotFoundError
from stratalog.scan.extent_planner import extents_of
from stratalog.scan.model import (
    AtTime,
    Position,
    Positions,
    ResolvedPositions,
    ScannedRange,
    ScanPlan,
    ScanRequest,
    Stretch,
)
from stratalog.scan.offset_ranges import Bound, Bounds, range_of, wish_of
from stratalog.scan.partition_selection import SelectedPartition, select_partitions
from stratalog.scan.scan_splits import cut_into_splits
from stratalog.scan.times import TimeSearch
from stratalog.segment.reader import SegmentReader
from stratalog.settings import ScanSettings

_PARTITIONS_AT_ONCE = 32
"""The number of partitions whose indexes are read, or searched by time, at the same time."""

_T = TypeVar("_T")
_R = TypeVar("_R")


class Scanner:
    def __init__(
        self,
        *,
        control: ControlPlane,
        reader: SegmentReader,
        index: BatchIndex,
        times: TimeSearch,
        settings: ScanSettings,
    ) -> None:
        self._control = control
        self._reader = reader
        self._index = index
        self._times = times
        self._settings = settings

    async def plan(self, request: ScanRequest) -> ScanPlan:
        """Plan a scan of the topics as they are now. It is readable until the plan's lease ends."""
        selected = await select_partitions(self._control, request)
        starts = await self._bounds(selected, request.starting)
        ends = await self._bounds(selected, request.ending)
        bounds = [Bounds(*both) for both in zip(starts, ends, strict=True)]
        snapshot = await self._control.scans.take_snapshot(
            [wish_of(one, both, request.rows) for one, both in zip(selected, bounds, strict=True)],
            holder=request.holder,
            duration_ms=request.lease_ms or self._settings.lease_ms,
        )
        try:
            return await self._plan(request, selected, bounds, snapshot)
        except BaseException:
            with suppress(StratalogError):
                await self._control.scans.release_lease(snapshot.lease.lease_id)
            raise

    async def resolve(
        self, request: ScanRequest, positions: Sequence[Positions]
    ) -> ResolvedPositions:
        """Return the offsets that positions stand for now, for all partitions of the request."""
        selected = await select_partitions(self._control, request)
        bounds = [await self._bounds(selected, wanted) for wanted in positions]
        states = await self._control.log.partitions([one.key for one in selected])
        gone = _gone(selected, states, request)

        def named(bounds: Sequence[Bound]) -> dict[tuple[str, int], Offset]:
            return {
                (one.topic, int(one.partition)): _named(bound.offset, states[one.key], request)
                for one, bound in zip(selected, bounds, strict=True)
                if one.topic not in gone
            }

        ids = {one.topic: one.key.topic_id for one in selected if one.topic not in gone}
        return ResolvedPositions([named(each) for each in bounds], ids)

    async def renew(self, lease: Lease, duration_ms: int) -> Lease:
        """Keep a plan readable for so long from now on."""
        return await self._control.scans.renew_lease(lease.lease_id, duration_ms=duration_ms)

    async def release(self, lease: Lease) -> None:
        """End the lease of a plan that will not be read any more."""
        await self._control.scans.release_lease(lease.lease_id)

    async def _plan(
        self,
        request: ScanRequest,
        selected: Sequence[SelectedPartition],
        bounds: Sequence[Bounds],
        snapshot: ScanSnapshot,
    ) -> ScanPlan:
        found = [
            _exists(one, scanned)
            for one, scanned in zip(selected, snapshot.partitions, strict=True)
        ]
        ranges = [
            range_of(one, scanned.state, both, request)
            for one, scanned, both in zip(selected, found, bounds, strict=True)
        ]

        async def stretch(pair: tuple[ScannedPartition, ScannedRange]) -> Stretch:
            return await self._stretch(*pair, request)

        stretches = await _each(stretch, zip(found, ranges, strict=True))
        split_bytes = request.split_bytes or self._settings.split_bytes
        return ScanPlan(
            splits=cut_into_splits(stretches, request, split_bytes),
            ranges=ranges,
            lease=snapshot.lease,
        )

    async def _stretch(
        self, scanned: ScannedPartition, wanted: ScannedRange, request: ScanRequest
    ) -> Stretch:
        extents = await extents_of(self._reader, self._index, scanned, wanted, request.rows)
        aborted = await self._aborted(scanned, wanted) if extents and request.committed else []
        return Stretch(
            topic=wanted.topic,
            partition=wanted.partition,
            first_offset=wanted.start,
            end_offset=wanted.end,
            extents=extents,
            aborted=aborted,
        )

    async def _aborted(
        self, scanned: ScannedPartition, wanted: ScannedRange
    ) -> list[AbortedRecords]:
        if not scanned.noted:
            return []
        found = await self._reader.aborted(scanned.noted, wanted.start, wanted.end)
        # Adopted segments may overlap, and then both note the same transaction.
        return sorted(
            {AbortedRecords(one.producer_id, one.first_offset, one.last_offset) for one in found},
            key=lambda one: one.first_offset,
        )

    async def _bounds(
        self, selected: Sequence[SelectedPartition], positions: Positions
    ) -> list[Bound]:
        async def bound(one: SelectedPartition) -> Bound:
            return await self._bound(one, one.position(positions))

        return await _each(bound, selected)

    async def _bound(self, one: SelectedPartition, position: Position) -> Bound:
        if not isinstance(position, AtTime):
            return Bound(position, given=position not in (EARLIEST, LATEST))
        query = TimeQuery(
            topic_id=one.key.topic_id, partition=one.partition, timestamp=position.timestamp_ms
        )
        found = await self._times.first(query)
        if found is not None:
            return Bound(found.offset, given=False)
        if position.or_latest:
            return Bound(LATEST, given=False)
        raise NoSuchTimeError(
            f"{one} has no record at or after {position.timestamp_ms} ms since 1970, and was not"
            " to be read from its end instead"
        )


def _gone(
    selected: Sequence[SelectedPartition],
    states: Mapping[TopicPartition, PartitionState],
    request: ScanRequest,
) -> set[str]:
    """Return the topics that were deleted since they were selected.

    That is an error only if the request names them: a pattern's topics may come and go.
    """
    missing = [one for one in selected if one.key not in states]
    if missing and request.pattern is None:
        raise _deleted(missing[0])
    return {one.topic for one in missing}


def _deleted(one: SelectedPartition) -> TopicNotFoundError:
    return TopicNotFoundError(f"{one} is gone: its topic was deleted a moment ago")


def _exists(one: SelectedPartition, found: _T | None) -> _T:
    if found is None:
        raise _deleted(one)
    return found


def _named(offset: Offset, state: PartitionState, request: ScanRequest) -> Offset:
    if offset == EARLIEST:
        return state.log_start
    if offset == LATEST:
        return state.last_stable if request.committed else state.high_watermark
    return offset


async def _each(work: Callable[[_T], Awaitable[_R]], items: Iterable[_T]) -> list[_R]:
    """Return the results in order. A bounded number of items is in progress at a time."""
    turns = asyncio.Semaphore(_PARTITIONS_AT_ONCE)

    async def one(item: _T) -> _R:
        async with turns:
            return await work(item)

    tasks = [asyncio.ensure_future(one(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    finally:
        # The first failure is raised. Then no caller waits for the other results.
        for task in tasks:
            task.cancel()
