"""The comparison of a segment's transaction index with its log. Fed batch by batch.

Each entry must have its marker in the log, the first offset of its transaction, and the last stable
offset at that time. Each abort marker must have an entry if its transaction has records. The log
alone does not show the transactions that were open before the segment. If the state before the
segment is not known, offsets below the segment are accepted, and a transaction without records in
the segment may have an entry or none.
"""

from collections.abc import Iterator
from typing import NamedTuple

from stratalog.batch.header import CONTROL_BIT, BatchHeader
from stratalog.control.segments.model import Segment
from stratalog.ids import NO_OFFSET, Offset, ProducerId
from stratalog.segment.model import AbortedTransaction
from stratalog.segment.producer_changes import (
    ProducerChanges,
    TransactionBegun,
    TransactionEnded,
)
from stratalog.segment.producer_state import PartitionTail
from stratalog.segment.txn_index import decode_aborted


class _Abort(NamedTuple):
    """An abort marker, as the log has it."""

    first_offset: Offset | None
    """None if no record is known that the marker aborts."""
    last_stable: Offset


class TransactionAudit:
    def __init__(self, segment: Segment, data: bytes, before: PartitionTail | None) -> None:
        """`before` is the state at the segment's start, if it is known."""
        self._base = segment.base_offset
        self._before = before
        self._entries = {(one.producer_id, one.last_offset): one for one in decode_aborted(data)}
        self._changes = ProducerChanges()

    def step(self, header: BatchHeader, batch: memoryview) -> None:
        """Take note of a batch, whose CRC was checked."""
        if header.producer_id < 0:
            return
        if header.attributes & CONTROL_BIT:
            self._changes.note_control(batch, 0)
            return
        self._changes.note(header)

    def finish(self) -> Iterator[str]:
        aborts = self._aborts()
        for name, last in sorted(self._entries.keys() - aborts.keys()):
            yield _not_so(name, last)
        for (name, last), abort in sorted(aborts.items()):
            entry = self._entries.get((name, last))
            if entry is not None:
                yield from self._compare(entry, abort)
            elif abort.first_offset is not None:
                yield f"it does not say that producer {name} aborted at offset {last}"

    def _aborts(self) -> dict[tuple[ProducerId, Offset], _Abort]:
        """Return all abort markers, with their first offsets where known."""
        open_ones = _open_in(self._before or PartitionTail())
        aborts = {}
        for event in self._changes.events:
            match event:
                case TransactionBegun():
                    open_ones.setdefault(event.producer_id, event.offset)
                case TransactionEnded():
                    first = open_ones.pop(event.producer_id, None)
                    stable = min(open_ones.values(), default=Offset(event.offset + 1))
                    if event.aborted:
                        aborts[event.producer_id, event.offset] = _Abort(first, stable)
        return aborts

    def _compare(self, entry: AbortedTransaction, abort: _Abort) -> Iterator[str]:
        name, last = entry.producer_id, entry.last_offset
        if abort.first_offset is None and self._before is not None:
            yield _not_so(name, last)
        elif not self._fits(entry.first_offset, abort.first_offset):
            yield (
                f"it says that the transaction that producer {name} aborted at offset {last} began"
                f" at {entry.first_offset}, which is not so"
            )
        if not self._fits(entry.last_stable, abort.last_stable):
            yield (
                f"it says that all before offset {entry.last_stable} was decided when producer"
                f" {name} aborted at {last}, which is not so"
            )

    def _fits(self, offset: Offset, known: Offset | None) -> bool:
        return offset == known or (self._before is None and offset < self._base)


def _open_in(tail: PartitionTail) -> dict[ProducerId, Offset]:
    return {
        producer_id: entry.txn_first_offset
        for producer_id, entry in tail.producers.items()
        if entry.txn_first_offset != NO_OFFSET
    }


def _not_so(name: ProducerId, last: Offset) -> str:
    return f"it says that producer {name} aborted at offset {last}, which is not so"
