"""The state of a partition's producers at the end of a segment, and its change by a segment.

The rules are the ones of Kafka's ProducerStateManager for batches that were accepted long ago:
sequences and epochs are not checked again.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from stratalog.batch.header import BytesLike
from stratalog.ids import NO_OFFSET, Offset, ProducerId
from stratalog.segment.build import BuiltLog
from stratalog.segment.errors import SegmentRefusedError
from stratalog.segment.model import AbortedTransaction
from stratalog.segment.producer_changes import (
    LastBatch,
    TransactionBegun,
    TransactionEnded,
    TransactionEvent,
)
from stratalog.segment.producer_snapshot import (
    ProducerEntry,
    decode_snapshot,
    encode_snapshot,
)


@dataclass(frozen=True, slots=True)
class PartitionTail:
    """The state of producers at a segment's end."""

    producers: Mapping[ProducerId, ProducerEntry] = field(default_factory=dict)

    @classmethod
    def from_snapshot(cls, data: BytesLike) -> "PartitionTail":
        return cls({entry.producer_id: entry for entry in decode_snapshot(data)})

    def to_snapshot(self) -> bytes:
        """Encode the state. Equal states give equal bytes."""
        return encode_snapshot([self.producers[each] for each in sorted(self.producers)])

    def forget(self, before_ms: int) -> "PartitionTail":
        """Leave out producers without a batch since then and without an open transaction."""
        return PartitionTail(
            {
                producer_id: entry
                for producer_id, entry in self.producers.items()
                if entry.timestamp > before_ms or entry.txn_first_offset != NO_OFFSET
            }
        )

    def decided(self) -> "PartitionTail":
        """Return the state without open transactions.

        An adopted log continues with this state: transactions that were open at its end count as
        committed, and no marker will come that ends them.
        """
        return PartitionTail(
            {
                producer_id: entry._replace(txn_first_offset=NO_OFFSET)
                for producer_id, entry in self.producers.items()
            }
        )


def advance(tail: PartitionTail, built: BuiltLog) -> tuple[PartitionTail, list[AbortedTransaction]]:
    """Return the state after the next segment, and the entries of its transaction index."""
    newest = max((entry.last_offset for entry in tail.producers.values()), default=NO_OFFSET)
    if newest >= built.base_offset:
        raise SegmentRefusedError(
            f"the segment at {built.base_offset} cannot follow: a producer wrote"
            f" at {newest} before it"
        )
    state = _State(tail.producers)
    for change in _in_order(built.producers, built.transactions):
        state.apply(change)
    return PartitionTail(state.producers), state.aborted


class _State:
    """The state between the end of one segment and the end of the next."""

    def __init__(self, producers: Mapping[ProducerId, ProducerEntry]) -> None:
        self.producers = dict(producers)
        self.aborted: list[AbortedTransaction] = []
        self._open = {
            entry.producer_id: entry.txn_first_offset
            for entry in producers.values()
            if entry.txn_first_offset != NO_OFFSET
        }

    def apply(self, change: LastBatch | TransactionEvent) -> None:
        entry = self.producers.get(change.producer_id) or ProducerEntry(change.producer_id)
        match change:
            case LastBatch():
                entry = _after_batch(entry, change)
            case TransactionBegun():
                entry = self._after_begin(entry, change)
            case TransactionEnded():
                entry = self._after_end(entry, change)
        self.producers[change.producer_id] = entry

    def _after_begin(self, entry: ProducerEntry, begun: TransactionBegun) -> ProducerEntry:
        first_offset = self._open.setdefault(begun.producer_id, begun.offset)
        return entry._replace(txn_first_offset=first_offset)

    def _after_end(self, entry: ProducerEntry, ended: TransactionEnded) -> ProducerEntry:
        first_offset = self._open.pop(ended.producer_id, None)
        # A marker without records before it has nothing to abort.
        if ended.aborted and first_offset is not None:
            last_stable = min(self._open.values(), default=Offset(ended.offset + 1))
            self.aborted.append(
                AbortedTransaction(ended.producer_id, first_offset, ended.offset, last_stable)
            )
        if ended.producer_epoch != entry.producer_epoch:
            # A marker may begin an epoch: batches of an older one are no longer duplicates.
            entry = ProducerEntry(ended.producer_id, ended.producer_epoch)
        return entry._replace(
            timestamp=ended.timestamp,
            coordinator_epoch=ended.coordinator_epoch,
            txn_first_offset=NO_OFFSET,
        )


def _after_batch(entry: ProducerEntry, batch: LastBatch) -> ProducerEntry:
    return entry._replace(
        producer_epoch=batch.producer_epoch,
        last_sequence=batch.last_sequence,
        last_offset=batch.last_offset,
        offset_delta=batch.offset_delta,
        timestamp=batch.timestamp,
    )


def _in_order(
    batches: Iterable[LastBatch], events: Iterable[TransactionEvent]
) -> Iterator[LastBatch | TransactionEvent]:
    """Sort changes by offset. A batch that begins a transaction makes two changes, of different
    fields."""
    changes: list[tuple[int, LastBatch | TransactionEvent]] = [
        *((batch.last_offset - batch.offset_delta, batch) for batch in batches),
        *((event.offset, event) for event in events),
    ]
    return (change for _, change in sorted(changes, key=lambda each: each[0]))
