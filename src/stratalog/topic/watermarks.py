"""Readers that wait for partitions to grow.

A reader registers first and looks then, so that no write can slip in between its look and its
sleep. Three sources wake it: the commits of this broker, the hints of other brokers, and the slow
poll in this file, which is the net under the other two.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import TracebackType

from stratalog.clock import Clock
from stratalog.control.plane import ControlPlane
from stratalog.errors import StratalogError
from stratalog.ids import Offset, TopicPartition

log = logging.getLogger(__name__)


class Watch:
    """One reader's interest in some partitions. Use as a context manager."""

    def __init__(self, watermarks: "Watermarks", partitions: Iterable[TopicPartition]) -> None:
        self._watermarks = watermarks
        self.partitions = tuple(partitions)
        self._grown = asyncio.Event()

    def __enter__(self) -> "Watch":
        self._watermarks.add(self)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._watermarks.remove(self)

    def wake(self) -> None:
        self._grown.set()

    def rest(self) -> None:
        """Forget the last wake-up. Call it before each look."""
        self._grown.clear()

    async def grown(self, timeout_s: float) -> bool:
        """Wait until a partition has grown since the last `rest`. False after the time-out."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._grown.wait()
        except TimeoutError:
            return False
        return True


class Watermarks:
    """The watches of this broker, and the newest high watermark known of each watched partition."""

    def __init__(self, *, control: ControlPlane, clock: Clock, poll_ms: int) -> None:
        self._control = control
        self._clock = clock
        self._poll_ms = poll_ms
        # Inner dictionaries as ordered sets: watches are woken in the order in which they came.
        self._watches: dict[TopicPartition, dict[Watch, None]] = defaultdict(dict)
        self._known: dict[TopicPartition, Offset] = {}
        self._hinted: set[TopicPartition] = set()
        self._look: asyncio.Task[None] | None = None
        self._poller = asyncio.create_task(self._poll_for_ever(), name="watermark-poll")

    def watch(self, partitions: Iterable[TopicPartition]) -> Watch:
        return Watch(self, partitions)

    def add(self, watch: Watch) -> None:
        for partition in watch.partitions:
            self._watches[partition][watch] = None

    def remove(self, watch: Watch) -> None:
        for partition in watch.partitions:
            watches = self._watches[partition]
            watches.pop(watch, None)
            if not watches:
                del self._watches[partition]
                self._known.pop(partition, None)

    def advanced(self, advanced: Mapping[TopicPartition, Offset]) -> None:
        """Wake the watches of partitions that have grown beyond their known high watermarks."""
        for partition in self._news(advanced):
            for watch in self._watches[partition]:
                watch.wake()
        for partition, high_watermark in advanced.items():
            self.seen(partition, high_watermark)

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
            if partition in self._watches and high_watermark > self._known.get(partition, -1)
        ]

    async def _look_at_hinted(self) -> None:
        try:
            while self._hinted:
                partitions, self._hinted = list(self._hinted), set()
                self.advanced(await self._control.log.high_watermarks(partitions))
        except StratalogError as error:
            log.warning("High watermarks were not looked up after a hint: %s", error)
        finally:
            self._look = None

    def seen(self, partition: TopicPartition, high_watermark: Offset) -> None:
        """Note a high watermark that a reader has seen, so that it wakes no watch."""
        if partition in self._watches and high_watermark > self._known.get(partition, -1):
            self._known[partition] = high_watermark

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
            if not self._watches:
                continue
            try:
                self.advanced(await self._control.log.high_watermarks(list(self._watches)))
            except StratalogError as error:
                log.warning("High watermarks were not polled, trying again: %s", error)
            except Exception:
                # The net under lost hints must not tear for good.
                log.exception("High watermarks were not polled, trying again")
