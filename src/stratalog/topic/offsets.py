"""Offsets by name and by time, over all tiers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from stratalog.control.log.model import PartitionState, TimeQuery
from stratalog.control.plane import ControlPlane
from stratalog.ids import LeaderEpoch, Offset, TopicPartition
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.pieces import Piece, TimedRecord
from stratalog.topic.model import TimedOffset
from stratalog.topic.times import RecordTimes, TimeSearch


class TopicOffsets:
    def __init__(self, *, control: ControlPlane, times: RecordTimes) -> None:
        self._control = control
        self._times = times
        self._search = TimeSearch(control=control, times=times)

    async def earliest(self, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, TimedOffset]:
        return await self._boundaries(wanted, lambda state: state.log_start)

    async def earliest_local(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, TimedOffset]:
        """Find the first offset that is not in the remote tier alone."""
        return await self._boundaries(wanted, lambda state: max(state.log_start, state.remote_end))

    async def latest_tiered(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, TimedOffset | None]:
        """Find the last offset in the remote tier; None if the tier holds nothing."""
        states = await self._control.log.partitions(wanted)
        tiered = {key: one for key, one in states.items() if one.remote_end > one.log_start}
        found = await self._untimed(tiered, lambda state: Offset(state.remote_end - 1))
        return {key: found.get(key) for key in states}

    async def latest(
        self, wanted: Sequence[TopicPartition], *, committed: bool = False
    ) -> dict[TopicPartition, TimedOffset]:
        """Find the next offset to be written or, for committed transactions only, the last stable
        offset."""
        states = await self._control.log.partitions(wanted)
        return {
            key: _untimed(
                state.last_stable if committed else state.high_watermark, state.leader_epoch
            )
            for key, state in states.items()
        }

    async def newest(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, TimedOffset | None]:
        """Find the first record with the greatest timestamp, of each partition that has any."""
        found = await asyncio.gather(*map(self._newest_again_if_gone, wanted))
        return dict(zip(wanted, found, strict=True))

    async def at_time(self, queries: Sequence[TimeQuery]) -> list[TimedOffset | None]:
        """Find for each query the first record that is not older than asked."""
        return list(await asyncio.gather(*map(self._at_time, queries)))

    async def _at_time(self, query: TimeQuery) -> TimedOffset | None:
        return _timed(await self._search.first(query))

    async def _newest_again_if_gone(self, partition: TopicPartition) -> TimedOffset | None:
        try:
            return await self._newest(partition)
        except ObjectNotFoundError:
            # The object was deleted between the look and the read: look once more.
            return await self._newest(partition)

    async def _newest(self, partition: TopicPartition) -> TimedOffset | None:
        [piece] = await self._control.log.find_newest([partition])
        if piece is None:
            return None
        best = await self._newest_in(piece)
        if best is not None and best.timestamp >= piece.max_timestamp:
            return best
        # The newest record was deleted, and its piece is kept for the records behind it. So it is
        # the first piece of the partition, and the newest record that is left lies in it or in a
        # later piece.
        later: Piece | None = None
        async for one in self._search.pieces_after(piece):
            if later is None or one.max_timestamp > later.max_timestamp:
                later = one
        if later is None or (best is not None and best.timestamp >= later.max_timestamp):
            return best
        return await self._newest_in(later)

    async def _newest_in(self, piece: Piece) -> TimedOffset | None:
        return _timed(await self._times.newest(piece, await self._search.log_start(piece)))

    async def _boundaries(
        self, wanted: Sequence[TopicPartition], boundary: Callable[[PartitionState], Offset]
    ) -> dict[TopicPartition, TimedOffset]:
        return await self._untimed(await self._control.log.partitions(wanted), boundary)

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
        """Find the epoch that the offset was or will be written in."""
        # Most partitions have one epoch only, and need no look.
        if state.leader_epoch == 0 or offset >= state.high_watermark:
            return state.leader_epoch
        starts = await self._control.log.epochs(state.topic_partition)
        before = [start.epoch for start in starts if start.start_offset <= offset]
        return before[-1] if before else state.leader_epoch


def _timed(record: TimedRecord | None) -> TimedOffset | None:
    if record is None:
        return None
    return TimedOffset(
        offset=record.offset, timestamp=record.timestamp, leader_epoch=record.leader_epoch
    )


def _untimed(offset: Offset, epoch: LeaderEpoch) -> TimedOffset:
    return TimedOffset(offset=offset, timestamp=-1, leader_epoch=epoch)
