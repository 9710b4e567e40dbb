"""What is remembered about a producer on one partition, and what its next batch may be.

Sequences count records and wrap from 2^31 - 1 to 0, also inside a batch.
"""

import struct
from typing import NamedTuple

from stratalog.control.model import CommitOutcome

KEPT_BATCHES = 5
"""A producer has at most five requests under way, so a repeat is one of its last five batches."""

_SEQUENCE_MASK = (1 << 31) - 1
_RECENT = struct.Struct(">iiqq")


class RecentBatch(NamedTuple):
    base_sequence: int
    last_sequence: int
    base_offset: int
    append_time_ms: int


class ProducerState(NamedTuple):
    epoch: int
    recent: tuple[RecentBatch, ...]
    """The newest batches, oldest first. Never empty: an epoch is known by what it wrote."""


def last_sequence(base_sequence: int, last_offset_delta: int) -> int:
    return base_sequence + last_offset_delta & _SEQUENCE_MASK


def judge(
    state: ProducerState | None, epoch: int, base_sequence: int, last_sequence: int
) -> CommitOutcome | RecentBatch:
    """ACCEPTED, the reason why not, or the batch that this one repeats."""
    if state is None:
        return CommitOutcome.ACCEPTED
    if epoch < state.epoch:
        return CommitOutcome.FENCED_PRODUCER
    if epoch > state.epoch:
        return _accepted_if(base_sequence == 0)
    for batch in state.recent:
        if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
            return batch
    return _accepted_if(base_sequence == state.recent[-1].last_sequence + 1 & _SEQUENCE_MASK)


def advance(state: ProducerState | None, epoch: int, batch: RecentBatch) -> ProducerState:
    """The state after an accepted batch."""
    if state is None or epoch != state.epoch:
        return ProducerState(epoch, (batch,))
    return ProducerState(epoch, (*state.recent[1 - KEPT_BATCHES :], batch))


def pack_recent(recent: tuple[RecentBatch, ...]) -> bytes:
    """24 bytes per batch, oldest first, big-endian: base sequence and last sequence (32 bits),
    base offset and append time (64 bits)."""
    return b"".join([_RECENT.pack(*batch) for batch in recent])


def unpack_recent(packed: bytes) -> tuple[RecentBatch, ...]:
    return tuple(map(RecentBatch._make, _RECENT.iter_unpack(packed)))


def _accepted_if(in_order: bool) -> CommitOutcome:
    return CommitOutcome.ACCEPTED if in_order else CommitOutcome.OUT_OF_ORDER_SEQUENCE
