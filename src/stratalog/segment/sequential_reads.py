"""Sequential reads: the ends of earlier reads, and the space for reading ahead.

A read that begins where an earlier one ended is treated as a consumer on its way through the
partition. The position of that end in the log is remembered, so that the next read needs no index.
"""

from collections import OrderedDict
from typing import NamedTuple

from stratalog.ids import Offset, SegmentId, TopicPartition

MOST_ENDS = 4096
"""The number of ends that are remembered. One costs a few hundred bytes."""

_ACTIVE_TURNS = 8
"""A partition counts as scanned for so many turns, times the number of scanned partitions."""


class LogPosition(NamedTuple):
    """The position in a log at which a batch begins."""

    segment_id: SegmentId
    position: int


class SequentialReads:
    def __init__(self, shared_bytes: int) -> None:
        """`shared_bytes` is the space for reading ahead, for all consumers together."""
        self._shared_bytes = shared_bytes
        self._ends: OrderedDict[tuple[TopicPartition, Offset], LogPosition] = OrderedDict()
        self._scanned: OrderedDict[TopicPartition, int] = OrderedDict()
        self._turn = 0

    def position(self, partition: TopicPartition, offset: Offset) -> LogPosition | None:
        """Return the position at which an earlier read ended, if it ended before this offset."""
        return self._ends.get((partition, offset))

    def ended(self, partition: TopicPartition, offset: Offset, position: LogPosition) -> None:
        """Note that a read ended before this offset. The note stays, for several consumers."""
        self._ends[partition, offset] = position
        self._ends.move_to_end((partition, offset))
        if len(self._ends) > MOST_ENDS:
            self._ends.popitem(last=False)

    def reads_on(self, partition: TopicPartition) -> int:
        """Note that a consumer reads on. Returns its share of the space for reading ahead."""
        self._turn += 1
        self._scanned[partition] = self._turn
        self._scanned.move_to_end(partition)
        self._forget_idle()
        return self._shared_bytes // len(self._scanned)

    def _forget_idle(self) -> None:
        oldest = self._turn - _ACTIVE_TURNS * len(self._scanned)
        while next(iter(self._scanned.values())) < oldest:
            self._scanned.popitem(last=False)
