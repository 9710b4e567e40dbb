"""What can be wrong with a segment, its objects, or with the wish to build one."""

from collections.abc import Sequence

from stratalog.errors import CallError, DamagedError, RetriableError


class SegmentRefusedError(CallError):
    """These batches do not make one segment. The message names the offsets that are in the way."""


class SourceDamagedError(DamagedError):
    """A batch that should go into a segment is not what was committed. `offset` is its first."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"the batch at offset {offset}: {reason}")
        self.offset = offset


class IndexDamagedError(DamagedError):
    """The bytes of an index are not an index. The log is whole: build the index anew from it."""


class SnapshotDamagedError(DamagedError):
    """These bytes are not a producer snapshot that we understand."""


class EpochCheckpointDamagedError(DamagedError):
    """This text is not a leader-epoch checkpoint that we understand."""


class LogDamagedError(DamagedError):
    """The log of a segment does not hold the batches that it should. The message names it."""


class OldRecordFormatError(LogDamagedError):
    """The log holds records as Kafka wrote them before 0.11, which Kafka 4 cannot read either."""


class SegmentMismatchError(DamagedError):
    """A segment's row, its manifest and its objects do not speak of the same thing."""


class ReaderClosedError(RetriableError):
    """The reader of segments was closed while this read was under way."""


class ManifestDamagedError(DamagedError):
    """The manifest of a segment makes no sense. The message names the object."""


class ChunkDamagedError(DamagedError):
    """A stored chunk does not give the bytes that it should. The message names object and chunk."""


class IndexObjectDamagedError(DamagedError):
    """An `.indexes` object does not hold what its manifest says. The message names both."""


class DataKeyError(DamagedError):
    """A segment's data key does not open: the wrong private key, or a damaged manifest."""


class SeekTableDamagedError(DamagedError):
    """The end of this object is not a zstd seek table."""


class RemoteLogRecordError(DamagedError):
    """These bytes are not a record of `__remote_log_metadata` that we understand."""


class CustomMetadataDamagedError(DamagedError):
    """These bytes are not the custom metadata that Aiven's plugin writes."""


class KeyFileError(CallError):
    """A key file cannot be used. The message names it and says what to do, never what is in it."""


class KeyMissingError(CallError):
    """The key pair that is needed is not configured here. The message names its id."""


class EncodingError(CallError):
    """Nobody could read a segment that is laid out in this way."""


class UnexportableSegmentError(CallError):
    """Kafka would stop reading its metadata topic for good if it met this segment there."""


class LineageGapError(CallError):
    """Offsets are missing between the segments of a lineage. `gaps` are [start, end) pairs."""

    def __init__(self, message: str, gaps: Sequence[tuple[int, int]] = ()) -> None:
        super().__init__(message)
        self.gaps = tuple(gaps)
