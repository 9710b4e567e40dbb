"""Sequences of idempotent producers that this broker did not write and must see again first.

The control plane lets a producer that it does not know begin at any sequence, because its state
may have expired. If the first batch of a new producer is given up and its second one committed, the
second becomes that beginning, and the first can never be written any more. So a batch that follows
a missing one is marked: it must not be a beginning. A batch goes missing when its block is given
up, or when its request fails before it enters a block.

The mark says nothing about a producer that the control plane knows: the missing batch may have been
written through another broker meanwhile.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from stratalog.batch.entry import EntryBatch
from stratalog.control.log.model import BatchToCommit, BlockToCommit, CommitAnswer, CommitOutcome
from stratalog.ids import ProducerId, TopicPartition

_Key: TypeAlias = tuple[TopicPartition, ProducerId, int]

_MAX_KEPT = 10_000
"""Producers that never came back are forgotten, oldest first."""

_KNOWN = (CommitOutcome.ACCEPTED, CommitOutcome.DUPLICATE)


_SEQUENCE_MASK = (1 << 31) - 1
_HALF = 1 << 30


class MissingSequences:
    def __init__(self) -> None:
        self._first: OrderedDict[_Key, int] = OrderedDict()
        """The first missing sequence of each producer."""

    def refused(self, batches: Iterable[EntryBatch]) -> None:
        """Note batches whose request failed before they entered a block."""
        for batch in batches:
            header = batch.header
            producer_id = ProducerId(header.producer_id)
            key = (batch.topic_partition, producer_id, header.producer_epoch)
            self._miss(key, header.base_sequence)
        self._forget_oldest()

    def gave_up(self, batches: Iterable[BatchToCommit]) -> None:
        """Note batches, in the order in which they arrived, that were not committed."""
        for batch in batches:
            self._miss(_key(batch), batch.base_sequence)
        self._forget_oldest()

    def mark(self, block: BlockToCommit) -> BlockToCommit:
        """Return the block with the batches marked that follow a missing one."""
        if not self._first:
            return block
        return replace(block, batches=[self._marked(batch) for batch in block.batches])

    def answered(self, batches: Iterable[BatchToCommit], answers: Sequence[CommitAnswer]) -> None:
        """Forget the producers that the control plane now knows to be past the missing batch."""
        if self._first:
            for batch, answer in zip(batches, answers, strict=True):
                if answer.outcome in _KNOWN:
                    first = self._first.get(_key(batch))
                    if first is not None and not _precedes(batch.base_sequence, first):
                        del self._first[_key(batch)]

    def _miss(self, key: _Key, sequence: int) -> None:
        _, producer_id, _ = key
        if producer_id >= 0:
            first = self._first.setdefault(key, sequence)
            if _precedes(sequence, first):
                self._first[key] = sequence

    def _forget_oldest(self) -> None:
        while len(self._first) > _MAX_KEPT:
            self._first.popitem(last=False)

    def _marked(self, batch: BatchToCommit) -> BatchToCommit:
        """Mark the batch if it follows a missing one. A missing batch that comes is no longer
        missing; a batch before it may be on its way since before the other was refused."""
        first = self._first.get(_key(batch))
        if first is None or _precedes(batch.base_sequence, first):
            return batch
        if first == batch.base_sequence:
            del self._first[_key(batch)]
            return batch
        return batch._replace(must_follow=True)


def _precedes(sequence: int, other: int) -> bool:
    """Tell whether a sequence comes before another one. Sequences wrap around."""
    return 0 < (other - sequence & _SEQUENCE_MASK) < _HALF


def _key(batch: BatchToCommit) -> _Key:
    return batch.topic_partition, batch.producer_id, batch.producer_epoch
