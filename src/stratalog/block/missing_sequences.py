"""Sequences of idempotent producers that this broker has given up and must see again first.

The control plane lets a producer that it does not know begin at any sequence, because its state may
have expired. If the first batch of a new producer were given up and its second one committed, the
second would become the beginning, and the first could never be written any more. So the batches
behind one that was given up are marked: they must not be a beginning. If the control plane knows
the producer, it ignores the mark and judges by its own state: the missing batch may have been
written through another broker meanwhile.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from stratalog.control.log.model import BatchToCommit, BlockToCommit, CommitAnswer, CommitOutcome
from stratalog.ids import ProducerId, TopicPartition

_MAX_KEPT = 10_000
"""Producers that never came back are forgotten, oldest first."""

_KNOWN = (CommitOutcome.ACCEPTED, CommitOutcome.DUPLICATE)


class MissingSequences:
    def __init__(self) -> None:
        self._first: OrderedDict[tuple[TopicPartition, ProducerId, int], int] = OrderedDict()

    def gave_up(self, batches: Iterable[BatchToCommit]) -> None:
        """Note batches that were not committed, in the order in which they arrived."""
        for batch in batches:
            if batch.producer_id >= 0:
                self._first.setdefault(_key(batch), batch.base_sequence)
        while len(self._first) > _MAX_KEPT:
            self._first.popitem(last=False)

    def mark(self, block: BlockToCommit) -> BlockToCommit:
        """Mark the batches of a block that follow a missing one."""
        if not self._first:
            return block
        return replace(block, batches=[self._marked(batch) for batch in block.batches])

    def answered(self, batches: Iterable[BatchToCommit], answers: Sequence[CommitAnswer]) -> None:
        """Forget the producers that the control plane now knows: it judges their next batches."""
        if self._first:
            for batch, answer in zip(batches, answers, strict=True):
                if answer.outcome in _KNOWN:
                    self._first.pop(_key(batch), None)

    def _marked(self, batch: BatchToCommit) -> BatchToCommit:
        """Mark the batch if it follows a missing one. The missing batch itself is not marked."""
        first = self._first.get(_key(batch))
        if first == batch.base_sequence:
            del self._first[_key(batch)]
        elif first is not None:
            return replace(batch, must_follow=True)
        return batch


def _key(batch: BatchToCommit) -> tuple[TopicPartition, ProducerId, int]:
    return batch.topic_partition, batch.producer_id, batch.producer_epoch
