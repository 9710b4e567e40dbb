"""Who reads on: where reads of partitions ended, and the room that each is read ahead into.

A read that begins where an earlier one ended is taken for a consumer on its way through the
partition. That place in the log is remembered, too, so that such a read needs no index.
"""

from collections import OrderedDict
from typing import NamedTuple

from stratalog.ids import Offset, SegmentId, TopicPartition

MOST_ENDS = 4096
"""Places that are remembered. One costs a few hundred bytes."""

_ACTIVE_TURNS = 8
"""A partition is being scanned if it was one of the last so many times the scanned partitions."""


class LogPosition(NamedTuple):
    """The position of the log at which the batch with some offset begins."""

    segment_id: SegmentId
    position: int


class SequentialReads:
    def __init__(self, shared_bytes: int) -> None:
        """`shared_bytes` is what there is for reading ahead, of all consumers together."""
        self._shared_bytes = shared_bytes
        self._ends: OrderedDict[tuple[TopicPartition, Offset], LogPosition] = OrderedDict()
        self._scanned: OrderedDict[TopicPartition, int] = OrderedDict()
        self._turn = 0

    def place(self, partition: TopicPartition, offset: Offset) -> LogPosition | None:
        """Where an earlier read ended, if it ended just before this offset."""
        return self._ends.get((partition, offset))

    def ended(self, partition: TopicPartition, offset: Offset, place: LogPosition) -> None:
        """A read ended before this offset. The place stays for several consumers side by side."""
        self._ends[partition, offset] = place
        self._ends.move_to_end((partition, offset))
        if len(self._ends) > MOST_ENDS:
            self._ends.popitem(last=False)

    def reads_on(self, partition: TopicPartition) -> int:
        """A consumer reads on: how much of the room for reading ahead is its own."""
        self._turn += 1
        self._scanned[partition] = self._turn
        self._scanned.move_to_end(partition)
        self._forget_idle()
        return self._shared_bytes // len(self._scanned)

    def _forget_idle(self) -> None:
        oldest = self._turn - _ACTIVE_TURNS * len(self._scanned)
        while next(iter(self._scanned.values())) < oldest:
            self._scanned.popitem(last=False)
