"""The memory of a producer on one partition, which decides about its next batch.

Sequences count records and wrap from 2^31 - 1 to 0, also inside a batch.

The batches that are remembered stay packed: 24 bytes each, oldest first, big-endian: base sequence
and last sequence (32 bits), base offset and append time (64 bits). A commit mostly looks at the
last one alone, and has no time to unpack the others.
"""

import struct
from typing import NamedTuple

from stratalog.control.log.model import CommitOutcome

KEPT_BATCHES = 5
"""A producer has at most five requests under way, so a repeat is one of its last five batches."""

_ACCEPTED = CommitOutcome.ACCEPTED
_SEQUENCE_MASK = (1 << 31) - 1
_RECENT = struct.Struct(">iiqq")
_KEPT_BYTES = KEPT_BATCHES * _RECENT.size


class RecentBatch(NamedTuple):
    base_sequence: int
    last_sequence: int
    base_offset: int
    append_time_ms: int


class ProducerState(NamedTuple):
    epoch: int
    packed: bytes
    """Never empty: an epoch is known by its batches."""

    @property
    def recent(self) -> list[RecentBatch]:
        return [RecentBatch._make(values) for values in _RECENT.iter_unpack(self.packed)]

    @property
    def last(self) -> RecentBatch:
        return RecentBatch._make(_RECENT.unpack_from(self.packed, -_RECENT.size))


class Producer:
    """A producer on one partition while its batches are being judged."""

    __slots__ = ("_epoch", "_next_sequence", "_packed", "changed")

    def __init__(self, state: ProducerState | None) -> None:
        self.changed = False
        self._epoch = -1
        self._packed = b""
        self._next_sequence = -1
        if state is not None:
            self._epoch, self._packed = state
            self._next_sequence = state.last.last_sequence + 1 & _SEQUENCE_MASK

    @property
    def is_known(self) -> bool:
        return bool(self._packed)

    @property
    def state(self) -> ProducerState:
        return ProducerState(self._epoch, self._packed[-_KEPT_BYTES:])

    def take(
        self, epoch: int, base_sequence: int, last_offset_delta: int, offset: int, now_ms: int
    ) -> CommitOutcome | RecentBatch:
        """Return ACCEPTED, and remember the batch; or the reason against; or the repeated batch."""
        last_sequence = base_sequence + last_offset_delta & _SEQUENCE_MASK
        if epoch != self._epoch and self._packed:
            if epoch < self._epoch:
                return CommitOutcome.FENCED_PRODUCER
            if base_sequence != 0:
                return CommitOutcome.OUT_OF_ORDER_SEQUENCE
            self._packed = b""
        elif base_sequence != self._next_sequence and self._packed:
            return self._repeated(base_sequence, last_sequence)
        self._epoch = epoch
        self._next_sequence = last_sequence + 1 & _SEQUENCE_MASK
        self._packed += _RECENT.pack(base_sequence, last_sequence, offset, now_ms)
        self.changed = True
        return _ACCEPTED

    def _repeated(self, base_sequence: int, last_sequence: int) -> CommitOutcome | RecentBatch:
        for batch in self.state.recent:
            if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                return batch
        return CommitOutcome.OUT_OF_ORDER_SEQUENCE


def pack_batch(
    *, last_sequence: int, last_offset_delta: int, base_offset: int, append_time_ms: int
) -> bytes:
    """A remembered batch of which the last sequence is known, not the first."""
    base_sequence = last_sequence - last_offset_delta & _SEQUENCE_MASK
    return _RECENT.pack(base_sequence, last_sequence, base_offset, append_time_ms)
