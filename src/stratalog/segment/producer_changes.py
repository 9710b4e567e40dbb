"""The changes that a segment's batches make to the state of producers, whatever that state is.

Segments of one partition are built at the same time, before the state at the start of each is
known. So a builder notes only the facts that are needed to apply the segment to any earlier state
later: every producer's last batch of data, and in order the begins and ends of transactions. Other
batches leave no trace in the state.
"""

from typing import NamedTuple

from stratalog.batch.control import ControlType, parse_end_txn_marker
from stratalog.batch.header import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    parse_header,
)
from stratalog.batch.records import iter_body
from stratalog.ids import Offset, ProducerId

_INT32_LAST = (1 << 31) - 1


class LastBatch(NamedTuple):
    """The last batch of data that a producer wrote into a segment."""

    producer_id: ProducerId
    producer_epoch: int
    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: int


class TransactionBegun(NamedTuple):
    """A producer's first transactional batch in the segment, or since its last marker there.

    The transaction may be older: only the state before the segment can tell.
    """

    producer_id: ProducerId
    offset: Offset


class TransactionEnded(NamedTuple):
    """A marker that commits or aborts a transaction."""

    producer_id: ProducerId
    offset: Offset
    producer_epoch: int
    coordinator_epoch: int
    timestamp: int
    aborted: bool


TransactionEvent = TransactionBegun | TransactionEnded


class ProducerChanges:
    """Collects the changes batch by batch."""

    def __init__(self) -> None:
        self._last: dict[ProducerId, BatchHeader] = {}
        self._in_transaction: set[int] = set()
        self._events: list[TransactionEvent] = []

    def note(self, header: BatchHeader) -> None:
        """Note a batch of data, which must be stamped."""
        producer_id = ProducerId(header.producer_id)
        if header.attributes & TRANSACTIONAL_BIT and producer_id not in self._in_transaction:
            self._in_transaction.add(producer_id)
            self._events.append(TransactionBegun(producer_id, Offset(header.base_offset)))
        self._last[producer_id] = header

    def note_control(self, view: memoryview, position: int) -> None:
        """Note a control batch, which must be stamped and whose CRC must have been checked."""
        header = parse_header(view, position)
        assert header.attributes & CONTROL_BIT
        # Compaction may leave a control batch without its record. Then it has no effect any more.
        for record in iter_body(view, position, header):
            marker = parse_end_txn_marker(record)
            if marker is None:
                continue
            self._in_transaction.discard(header.producer_id)
            self._events.append(
                TransactionEnded(
                    producer_id=ProducerId(header.producer_id),
                    offset=Offset(record.offset),
                    producer_epoch=header.producer_epoch,
                    coordinator_epoch=marker.coordinator_epoch,
                    timestamp=record.timestamp,
                    aborted=marker.kind is ControlType.ABORT,
                )
            )

    @property
    def last_batches(self) -> list[LastBatch]:
        return [
            LastBatch(
                producer_id=producer_id,
                producer_epoch=header.producer_epoch,
                last_sequence=last_sequence(header.base_sequence, header.last_offset_delta),
                last_offset=Offset(header.last_offset),
                offset_delta=header.last_offset_delta,
                timestamp=header.max_timestamp,
            )
            for producer_id, header in sorted(self._last.items())
        ]

    @property
    def events(self) -> list[TransactionEvent]:
        return list(self._events)


def last_sequence(base_sequence: int, offset_delta: int) -> int:
    """Return the sequence of a batch's last record. After the greatest int32 comes 0."""
    if base_sequence < 0:
        return base_sequence
    return (base_sequence + offset_delta) & _INT32_LAST
