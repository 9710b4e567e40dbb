"""Errors of segments: of their objects, and of attempts to build or adopt one."""

from collections.abc import Sequence

from stratalog.errors import CallError, DamagedError, RetriableError


class SegmentRefusedError(CallError):
    """These batches do not make one segment. The message names the offsets that do not fit."""


class SourceDamagedError(DamagedError):
    """A batch for a segment differs from the committed one. `offset` is its first offset."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"the batch at offset {offset}: {reason}")
        self.offset = offset


class IndexDamagedError(DamagedError):
    """The bytes of an index are not an index. The log is whole, so the index can be rebuilt."""


class SnapshotDamagedError(DamagedError):
    """These bytes are not a producer snapshot of a known version."""


class EpochCheckpointDamagedError(DamagedError):
    """This text is not a leader-epoch checkpoint of a known version."""


class LogDamagedError(DamagedError):
    """The log of a segment does not hold the batches that it should. The message names the log."""


class OldRecordFormatError(LogDamagedError):
    """The log holds records as Kafka wrote them before 0.11, which Kafka 4 cannot read either."""


class SegmentMismatchError(DamagedError):
    """A segment's row, its manifest and its objects contradict each other."""


class ReaderClosedError(RetriableError):
    """The reader of segments was closed during this read."""


class ManifestDamagedError(DamagedError):
    """The manifest of a segment is damaged. The message names the object."""


class ChunkDamagedError(DamagedError):
    """A stored chunk does not give the bytes that it should. The message names object and chunk."""


class IndexObjectDamagedError(DamagedError):
    """An `.indexes` object contradicts its manifest. The message names both."""


class DataKeyError(DamagedError):
    """A segment's data key does not open: the wrong private key, or a damaged manifest."""


class SeekTableDamagedError(DamagedError):
    """The end of this object is not a zstd seek table."""


class RemoteLogRecordError(DamagedError):
    """These bytes are not a record of `__remote_log_metadata` of a known version."""


class CustomMetadataDamagedError(DamagedError):
    """These bytes are not the custom metadata that Aiven's plugin writes."""


class KeyFileError(CallError):
    """A key file cannot be used. The message names the file and the remedy, never its contents."""


class KeyMissingError(CallError):
    """The key pair that is needed is not configured here. The message names its id."""


class EncodingError(CallError):
    """A segment with this encoding could not be read by Kafka's plugin."""


class UnexportableSegmentError(CallError):
    """Kafka would stop reading its metadata topic for good at a record about this segment."""


class LineageGapError(CallError):
    """Offsets are missing between the segments of a lineage. `gaps` are [start, end) pairs."""

    def __init__(self, message: str, gaps: Sequence[tuple[int, int]] = ()) -> None:
        super().__init__(message)
        self.gaps = tuple(gaps)
