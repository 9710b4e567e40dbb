"""Errors of record batches."""

from collections.abc import Sequence
from typing import NamedTuple

from stratalog.errors import CallError, DamagedError


class RecordFault(NamedTuple):
    """The reason why one record keeps its batch out."""

    record: int
    """Counted from 0 in the batch."""
    reason: str


class BatchDamagedError(DamagedError):
    """These bytes are not a record batch. `position` is the first byte that is wrong.

    `batch_start` is the start of the batch with that byte. The batches before it are good, so a
    reader of several batches can still serve `buffer[:batch_start]`. `record_faults` names the
    record at fault, if one was found by a walk.
    """

    record_faults: Sequence[RecordFault] = ()

    def __init__(self, position: int, reason: str, batch_start: int | None = None) -> None:
        super().__init__(f"byte {position}: {reason}")
        self.position = position
        self.reason = reason
        self.batch_start = position if batch_start is None else batch_start


class CrcMismatchError(BatchDamagedError):
    """The checksum does not match the bytes."""


class UnsupportedMagicError(BatchDamagedError):
    """Only version 2 of the record batch is stored."""

    def __init__(self, position: int, magic: int, batch_start: int | None = None) -> None:
        super().__init__(position, f"magic {magic} is not 2", batch_start)
        self.magic = magic


class UnsupportedCodecError(BatchDamagedError):
    """The attributes name a compression codec that does not exist."""


class DecompressedTooLargeError(BatchDamagedError):
    """The records grow past the bound when decompressed, so they were not read to the end."""


class InvalidBatchError(CallError):
    """The bytes are whole, but a producer may not send this. `position` is the field's byte."""

    record_faults: Sequence[RecordFault] = ()

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"byte {position}: {reason}")
        self.position = position
        self.reason = reason


class BatchTooLargeError(InvalidBatchError):
    """The batch is larger than its topic takes."""


class InvalidTimestampError(InvalidBatchError):
    """The timestamps contradict each other or lie outside the range that the topic takes."""


def record_faults_of(error: BaseException) -> Sequence[RecordFault]:
    """The records that the error names one by one."""
    if isinstance(error, BatchDamagedError | InvalidBatchError):
        return error.record_faults
    return ()


class UnbuildableBatchError(CallError):
    """No record batch can hold the given records."""


class RunTooLargeError(CallError):
    """The records exceed one Arrow batch. Pass fewer batches at once; a single one always fits."""


class RowError(CallError):
    """A row cannot be a record. `row` counts from 0, in the columns that were given."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"row {row}: {reason}")
        self.row = row
        self.reason = reason


class RecordTooLargeError(RowError):
    """The record does not fit into a batch that its topic takes."""
