"""Whether the transaction index of a segment says of its log what is true. Fed batch by batch.

Each entry must have its marker in the log. Each abort marker must have an entry if its transaction
has records in the same segment; whether older ones had any, the log alone does not tell.
"""

from collections.abc import Iterator

from stratalog.batch.header import CONTROL_BIT, BatchHeader
from stratalog.ids import Offset, ProducerId
from stratalog.segment.producer_changes import (
    ProducerChanges,
    TransactionBegun,
    TransactionEnded,
)
from stratalog.segment.txn_index import decode_aborted


class TransactionAudit:
    def __init__(self, data: bytes) -> None:
        self._entries = {(one.producer_id, one.last_offset) for one in decode_aborted(data)}
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
        begun: set[ProducerId] = set()
        aborted: set[tuple[ProducerId, Offset]] = set()
        required: set[tuple[ProducerId, Offset]] = set()
        for event in self._changes.events:
            match event:
                case TransactionBegun():
                    begun.add(event.producer_id)
                case TransactionEnded():
                    entry = (event.producer_id, event.offset)
                    if event.aborted:
                        aborted.add(entry)
                        required |= {entry} if event.producer_id in begun else set()
                    begun.discard(event.producer_id)
        for name, last in sorted(self._entries - aborted):
            yield f"it says that producer {name} aborted at offset {last}, which is not so"
        for name, last in sorted(required - self._entries):
            yield f"it does not say that producer {name} aborted at offset {last}"
