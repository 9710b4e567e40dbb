"""Which sequences of idempotent producers this broker has given up and must see again first.

The control plane lets a producer that it does not know begin at any sequence, because its state
may have expired. Were the first batch of a new producer given up and its second one committed, the
second would become that beginning, and the first could never be written any more. So what follows
a batch that was given up is turned away as out of order, until that batch is sent again.
"""

from collections import OrderedDict
from collections.abc import Iterable

from stratalog.control.model import BatchToCommit
from stratalog.ids import ProducerId, TopicPartition

_MAX_KEPT = 10_000
"""Producers that never came back are forgotten, oldest first."""


class MissingSequences:
    def __init__(self) -> None:
        self._first: OrderedDict[tuple[TopicPartition, ProducerId, int], int] = OrderedDict()

    def gave_up(self, batches: Iterable[BatchToCommit]) -> None:
        """These batches, in the order in which they arrived, were not committed."""
        for batch in batches:
            if batch.producer_id >= 0:
                self._first.setdefault(_key(batch), batch.base_sequence)
        while len(self._first) > _MAX_KEPT:
            self._first.popitem(last=False)

    def admits(self, batch: BatchToCommit) -> bool:
        """Whether nothing before this batch is missing. Its own absence ends with this."""
        first = self._first.get(_key(batch))
        if first is None:
            return True
        if first != batch.base_sequence:
            return False
        del self._first[_key(batch)]
        return True


def _key(batch: BatchToCommit) -> tuple[TopicPartition, ProducerId, int]:
    return batch.topic_partition, batch.producer_id, batch.producer_epoch
