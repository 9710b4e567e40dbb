"""The comparison of all indexes of a segment with its log. Pure: fed batch by batch."""

from collections.abc import Iterable, Mapping

from stratalog.batch.header import BatchHeader
from stratalog.checks.offset_audit import OffsetAudit
from stratalog.checks.report import Problem, Promise
from stratalog.checks.segment_promises import epochs_agree, name_of
from stratalog.checks.time_audit import TimeAudit
from stratalog.checks.transaction_audit import TransactionAudit
from stratalog.control.segments.model import Segment
from stratalog.errors import DamagedError
from stratalog.segment.epoch_checkpoint import decode_checkpoint
from stratalog.segment.model import IndexKind
from stratalog.segment.producer_snapshot import decode_snapshot
from stratalog.segment.producer_state import PartitionTail

_MAX_PROBLEMS = 10
"""The most problems that are reported for one index: more would not help."""


class IndexAudit:
    """Compares all indexes of a segment. An index that cannot be read is compared no further."""

    def __init__(
        self,
        segment: Segment,
        indexes: Mapping[IndexKind, bytes],
        before: PartitionTail | None = None,
    ) -> None:
        """Take the indexes that could be read, and the state of producers at the segment's start.

        `before` is None if that state is not known.
        """
        self.problems: list[Problem] = []
        self._segment = segment
        self._before = before
        self._offsets: OffsetAudit | None = None
        self._times: TimeAudit | None = None
        self._transactions: TransactionAudit | None = None
        self._counts = dict.fromkeys(IndexKind, 0)
        for kind, data in indexes.items():
            try:
                self._open(kind, data)
            except DamagedError as error:
                self.add(kind, [str(error)])

    @property
    def wrong(self) -> set[IndexKind]:
        """The indexes that have problems."""
        return {kind for kind, count in self._counts.items() if count}

    def step(self, position: int, header: BatchHeader, batch: memoryview | None) -> None:
        """Compare the next batch of the log. `batch` is None if its CRC is wrong."""
        indexed = self._offsets is not None and self._offsets.names(position)
        if self._offsets is not None:
            self.add(IndexKind.OFFSET, self._offsets.step(position, header))
            if self._times is not None:
                self.add(IndexKind.TIMESTAMP, self._times.step(header, indexed=indexed))
        if self._transactions is not None and batch is not None:
            self._transactions.step(header, batch)

    def finish(self) -> None:
        if self._offsets is not None:
            self.add(IndexKind.OFFSET, self._offsets.finish())
            # Only a correct offset index shows which batches the time index must have.
            if self._times is not None and not self._counts[IndexKind.OFFSET]:
                self.add(IndexKind.TIMESTAMP, self._times.finish())
        if self._transactions is not None:
            self.add(IndexKind.TRANSACTION, self._transactions.finish())

    def add(self, kind: IndexKind, problems: Iterable[str]) -> None:
        for text in problems:
            self._counts[kind] += 1
            if self._counts[kind] <= _MAX_PROBLEMS:
                text = f"{name_of(self._segment)}: its {kind} index: {text}"
                self.problems.append(Problem(promise=Promise.READABLE, text=text))

    def _open(self, kind: IndexKind, data: bytes) -> None:
        match kind:
            case IndexKind.OFFSET:
                self._offsets = OffsetAudit(self._segment, data)
            case IndexKind.TIMESTAMP:
                self._times = TimeAudit(self._segment, data)
            case IndexKind.TRANSACTION:
                self._transactions = TransactionAudit(self._segment, data, self._before)
            case IndexKind.PRODUCER_SNAPSHOT:
                self._check_snapshot(data)
            case IndexKind.LEADER_EPOCH:
                self._check_epochs(data)

    def _check_snapshot(self, data: bytes) -> None:
        newest = max((entry.last_offset for entry in decode_snapshot(data)), default=-1)
        if newest > self._segment.last_offset:
            self.add(IndexKind.PRODUCER_SNAPSHOT, [f"a producer wrote at offset {newest}"])

    def _check_epochs(self, data: bytes) -> None:
        checkpoint = decode_checkpoint(data)
        for problem in epochs_agree(self._segment, checkpoint, "its checkpoint"):
            self.add(IndexKind.LEADER_EPOCH, [problem.text])
