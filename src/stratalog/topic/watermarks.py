"""Readers that wait for partitions to grow, and the newest known state of their partitions.

A reader registers first and looks then, so that no write can slip in between its look and its
sleep. Three sources wake it: the commits of this broker, the hints of other brokers, and the slow
poll in this file, which is the net under the other two.

The state that the last look found is known for as long as none of the three has contradicted it,
and for a poll longer than the partition is watched. So a reader that waits at the end of its
partitions, answer after answer, asks the control plane for nothing. The state may be as old as the
poll; a reader that finds its offset anywhere else than at the known end has to look.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from types import TracebackType

from stratalog.clock import Clock
from stratalog.control.log.model import PartitionState
from stratalog.control.plane import ControlPlane
from stratalog.errors import StratalogError
from stratalog.ids import Offset, TopicPartition
from stratalog.topic.wait_ends import WaitEnds

log = logging.getLogger(__name__)


class Watch:
    """One reader's interest in some partitions. Use as a context manager, or `close` it."""

    __slots__ = ("_is_woken", "_partitions", "_stirred", "_waiter", "_watermarks")

    def __init__(self, watermarks: "Watermarks", partitions: Iterable[TopicPartition]) -> None:
        self._watermarks = watermarks
        self._partitions: dict[TopicPartition, None] = {}
        self._stirred: dict[TopicPartition, None] = {}
        self._is_woken = False
        self._waiter: asyncio.Future[None] | None = None
        for partition in partitions:
            self.add(partition)

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def add(self, partition: TopicPartition) -> None:
        self._partitions[partition] = None
        self._watermarks.add(self, partition)

    def remove(self, partition: TopicPartition) -> None:
        del self._partitions[partition]
        self._stirred.pop(partition, None)
        self._watermarks.remove(self, partition)

    def close(self) -> None:
        for partition in self._partitions:
            self._watermarks.remove(self, partition)
        self._partitions.clear()

    def stir(self, partition: TopicPartition) -> None:
        self._stirred[partition] = None
        self.wake()

    def wake(self) -> None:
        self._is_woken = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def rest(self) -> Iterable[TopicPartition]:
        """Forget the last wake-up, and return the partitions that have changed since the `rest`
        before. Call it before each look."""
        self._is_woken = False
        stirred, self._stirred = self._stirred, {}
        return stirred

    async def grown(self, timeout_s: float) -> bool:
        """Wait until a partition has changed since the last `rest`. False after the time-out."""
        if self._is_woken or timeout_s <= 0:
            return self._is_woken
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        ends = self._watermarks.wait_ends
        end_s = ends.add(waiter, timeout_s)
        try:
            await waiter
        finally:
            ends.remove(waiter, end_s)
            self._waiter = None
        return self._is_woken


class Watermarks:
    """The watches of this broker, and the newest state known of each watched partition."""

    def __init__(self, *, control: ControlPlane, clock: Clock, poll_ms: int) -> None:
        self._control = control
        self._clock = clock
        self._poll_ms = poll_ms
        self.wait_ends = WaitEnds()
        # Inner dictionaries as ordered sets: watches are woken in the order in which they came.
        self._watches: dict[TopicPartition, dict[Watch, None]] = {}
        self._known: dict[TopicPartition, PartitionState] = {}
        self._told: dict[TopicPartition, Offset] = {}
        """High watermarks that no look has seen yet. A state below is too old to be known."""
        self._left: dict[TopicPartition, None] = {}
        self._left_before: dict[TopicPartition, None] = {}
        self._hinted: set[TopicPartition] = set()
        self._look: asyncio.Task[None] | None = None
        self._poller = asyncio.create_task(self._poll_for_ever(), name="watermark-poll")

    def watch(self, partitions: Iterable[TopicPartition]) -> Watch:
        return Watch(self, partitions)

    def add(self, watch: Watch, partition: TopicPartition) -> None:
        watches = self._watches.get(partition)
        if watches is None:
            watches = self._watches[partition] = {}
        watches[watch] = None

    def remove(self, watch: Watch, partition: TopicPartition) -> None:
        watches = self._watches[partition]
        watches.pop(watch, None)
        if not watches:
            self._left[partition] = None

    def known(self, partition: TopicPartition) -> PartitionState | None:
        """Return the state of a watched partition, unless it may have changed."""
        return self._known.get(partition)

    def advanced(self, advanced: Mapping[TopicPartition, Offset]) -> None:
        """Wake the watches of partitions that have grown beyond their known high watermarks."""
        for partition in self._news(advanced):
            self._told[partition] = advanced[partition]
            self._forget(partition)

    def hinted(self, advanced: Mapping[TopicPartition, Offset]) -> None:
        """Look whether the watched partitions among these have grown, as a broker said.

        One look serves all their readers and all hints that came during the look before, so that
        any number of hints costs one request at a time. Nothing else rests on a hint.
        """
        self._hinted.update(self._news(advanced))
        if self._hinted and self._look is None:
            self._look = asyncio.create_task(self._look_at_hinted(), name="look after hints")

    def _news(self, advanced: Mapping[TopicPartition, Offset]) -> list[TopicPartition]:
        return [
            partition
            for partition, high_watermark in advanced.items()
            if partition in self._watches and high_watermark > self._newest(partition)
        ]

    def _newest(self, partition: TopicPartition) -> int:
        known = self._known.get(partition)
        return self._told.get(partition, -1) if known is None else known.high_watermark

    async def _look_at_hinted(self) -> None:
        try:
            while self._hinted:
                partitions, self._hinted = list(self._hinted), set()
                self.advanced(await self._control.log.high_watermarks(partitions))
        except StratalogError as error:
            log.warning("High watermarks were not looked up after a hint: %s", error)
        finally:
            self._look = None

    def seen(self, state: PartitionState) -> None:
        """Note a state that a reader has seen. It wakes the others if it is news to them."""
        partition = state.topic_partition
        if partition not in self._watches:
            return
        known = self._known.get(partition)
        if known is None:
            # Every watch was stirred when the state before was forgotten.
            if state.high_watermark >= self._told.get(partition, 0):
                self._told.pop(partition, None)
                self._known[partition] = state
        elif _is_newer(state, known):
            self._forget(partition)
            self._known[partition] = state

    def _forget(self, partition: TopicPartition) -> None:
        """Forget the state that was known, and let the watches know."""
        self._known.pop(partition, None)
        for watch in self._watches[partition]:
            watch.stir(partition)

    def wake_all(self) -> None:
        """Let every reader look again: this broker is about to stop."""
        for watches in self._watches.values():
            for watch in watches:
                watch.wake()

    async def close(self) -> None:
        tasks = [self._poller, *([self._look] if self._look is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _poll_for_ever(self) -> None:
        while True:
            await self._clock.sleep(self._poll_ms / 1000)
            self._forget_unwatched()
            if not self._watches:
                continue
            try:
                await self._poll()
            except StratalogError as error:
                log.warning("Partitions were not polled, trying again: %s", error)
                self._known.clear()
            except Exception:
                # The net under lost hints must not tear for good.
                log.exception("Partitions were not polled, trying again")
                self._known.clear()

    def _forget_unwatched(self) -> None:
        """Forget the partitions that no reader has watched since the poll before the last.

        Most readers come back as soon as they have their answer.
        """
        for partition in self._left_before:
            if partition not in self._left and not self._watches[partition]:
                del self._watches[partition]
                self._known.pop(partition, None)
                self._told.pop(partition, None)
        self._left_before, self._left = self._left, {}

    async def _poll(self) -> None:
        """Compare the known states with the database. A partition without a known state counts as
        moved: its readers are about to look, or their look has failed."""
        unknown = [partition for partition in self._watches if partition not in self._known]
        asked = dict(self._known)
        moved = await self._control.log.moved(list(asked.values())) if asked else []
        # News of a reader or a commit that came meanwhile are newer than the answer.
        for partition in moved:
            if partition in asked and self._known.get(partition) is asked[partition]:
                self._forget(partition)
        for partition in unknown:
            if partition in self._watches and partition not in self._known:
                self._forget(partition)


def _is_newer(state: PartitionState, known: PartitionState) -> bool:
    """Boundaries move forward only, so that the larger one is the newer one."""
    return (
        state.high_watermark > known.high_watermark
        or state.last_stable > known.last_stable
        or state.log_start > known.log_start
        or state.leader_epoch > known.leader_epoch
    )
