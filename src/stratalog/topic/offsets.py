"""Offsets by name and by time, over all tiers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from stratalog.control.model import PartitionState, Span, TimeQuery
from stratalog.control.plane import ControlPlane, UnknownTopicError
from stratalog.ids import LeaderEpoch, Offset, TopicPartition
from stratalog.objects.store import ObjectNotFoundError
from stratalog.topic.model import TimedOffset
from stratalog.topic.times import Place, RecordTimes

_WALK_BYTES = 1 << 40
"""How far one look of a walk reaches. The control plane's own bounds come first."""

_T = TypeVar("_T")


class TopicOffsets:
    def __init__(self, *, control: ControlPlane, times: RecordTimes) -> None:
        self._control = control
        self._times = times

    async def earliest(self, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, TimedOffset]:
        return await self._boundaries(wanted, lambda state: state.log_start)

    async def earliest_local(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, TimedOffset]:
        """The first offset that is not in the remote tier alone."""
        return await self._boundaries(wanted, lambda state: max(state.log_start, state.remote_end))

    async def latest_tiered(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, TimedOffset | None]:
        """The last offset in the remote tier; None for partitions that have nothing there."""
        states = await self._control.partitions(wanted)
        tiered = {key: one for key, one in states.items() if one.remote_end > one.log_start}
        found = await self._untimed(tiered, lambda state: Offset(state.remote_end - 1))
        return {key: found.get(key) for key in states}

    async def latest(
        self, wanted: Sequence[TopicPartition], *, committed: bool = False
    ) -> dict[TopicPartition, TimedOffset]:
        """The next offset to be written or, of committed transactions only, the last stable."""
        states = await self._control.partitions(wanted)
        return {
            key: _untimed(
                state.last_stable if committed else state.high_watermark, state.leader_epoch
            )
            for key, state in states.items()
        }

    async def newest(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, TimedOffset | None]:
        """The first record with the greatest timestamp, of those partitions that have any."""
        found = await asyncio.gather(*(_again_if_gone(self._newest, one) for one in wanted))
        return dict(zip(wanted, found, strict=True))

    async def at_time(self, queries: Sequence[TimeQuery]) -> list[TimedOffset | None]:
        """For each query the first record that is not older than asked."""
        found = await asyncio.gather(*(_again_if_gone(self._at_time, one) for one in queries))
        return list(found)

    async def _at_time(self, query: TimeQuery) -> TimedOffset | None:
        """Usually the first place holds the record. It does not if the record was deleted and the
        place stays for what comes after; then a later one may."""
        [place] = await self._control.find_by_time([query])
        if place is None:
            return None
        found = await self._first_in(place, query.timestamp)
        if found is not None:
            return found
        async for later in self._places_after(place):
            if later.max_timestamp >= query.timestamp:
                found = await self._first_in(later, query.timestamp)
                if found is not None:
                    return found
        return None

    async def _first_in(self, place: Place, timestamp: int) -> TimedOffset | None:
        return await self._times.first(place, timestamp, await self._log_start(place))

    async def _newest(self, partition: TopicPartition) -> TimedOffset | None:
        """Usually the place with the greatest time holds the record. It does not if the record
        was deleted and the place stays for what comes after: it is the partition's first one
        then, and the newest record is in what is left of it or in a later place."""
        [place] = await self._control.find_newest([partition])
        if place is None:
            return None
        best = await self._newest_in(place)
        if best is not None and best.timestamp >= place.max_timestamp:
            return best
        later: Place | None = None
        async for one in self._places_after(place):
            if later is None or one.max_timestamp > later.max_timestamp:
                later = one
        if later is None or (best is not None and best.timestamp >= later.max_timestamp):
            return best
        return await self._newest_in(later)

    async def _newest_in(self, place: Place) -> TimedOffset | None:
        return await self._times.newest(place, await self._log_start(place))

    async def _places_after(self, place: Place) -> AsyncIterator[Place]:
        """What holds the offsets behind a place, however the boundary moves meanwhile: every look
        is one snapshot and begins with the offset at which the last one ended."""
        offset = Offset(place.last_offset + 1)
        while True:
            span = Span(
                topic_id=place.topic_id,
                partition=place.partition,
                offset=offset,
                max_bytes=_WALK_BYTES,
            )
            [found] = await self._control.find_batches([span])
            places: list[Place] = [*found.segments, *found.rows]
            for one in places:
                yield one
            if places:
                offset = Offset(places[-1].last_offset + 1)
            elif found.state is not None and offset < found.state.log_start:
                # What was to come next has been deleted meanwhile.
                offset = found.state.log_start
            else:
                return

    async def _log_start(self, place: Place) -> Offset:
        partition = TopicPartition(place.topic_id, place.partition)
        states = await self._control.partitions([partition])
        if partition not in states:
            raise UnknownTopicError("the topic was deleted")
        return states[partition].log_start

    async def _boundaries(
        self, wanted: Sequence[TopicPartition], boundary: Callable[[PartitionState], Offset]
    ) -> dict[TopicPartition, TimedOffset]:
        return await self._untimed(await self._control.partitions(wanted), boundary)

    async def _untimed(
        self,
        states: Mapping[TopicPartition, PartitionState],
        boundary: Callable[[PartitionState], Offset],
    ) -> dict[TopicPartition, TimedOffset]:
        epochs = await asyncio.gather(
            *(self._epoch_at(state, boundary(state)) for state in states.values())
        )
        return {
            key: _untimed(boundary(state), epoch)
            for (key, state), epoch in zip(states.items(), epochs, strict=True)
        }

    async def _epoch_at(self, state: PartitionState, offset: Offset) -> LeaderEpoch:
        """The epoch that the offset was or will be written in. Most partitions have one only."""
        if state.leader_epoch == 0 or offset >= state.high_watermark:
            return state.leader_epoch
        starts = await self._control.epochs(state.topic_partition)
        before = [start.epoch for start in starts if start.start_offset <= offset]
        return before[-1] if before else state.leader_epoch


async def _again_if_gone(
    look_up: Callable[[_T], Awaitable[TimedOffset | None]], wanted: _T
) -> TimedOffset | None:
    """An object that is gone was deleted between the look and the read: look once more."""
    try:
        return await look_up(wanted)
    except ObjectNotFoundError:
        return await look_up(wanted)


def _untimed(offset: Offset, epoch: LeaderEpoch) -> TimedOffset:
    return TimedOffset(offset=offset, timestamp=-1, leader_epoch=epoch)
