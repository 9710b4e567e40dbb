"""One record batch: its header, checks, stamps, compression, building and decoding. No I/O."""

from stratalog.batch.build import build_batch, recompress
from stratalog.batch.codec import compress, decompress
from stratalog.batch.control import (
    ControlType,
    EndTxnMarker,
    control_type,
    end_txn_record,
    parse_end_txn_marker,
)
from stratalog.batch.errors import (
    BatchDamagedError,
    BatchTooLargeError,
    CrcMismatchError,
    DecompressedTooLargeError,
    InvalidBatchError,
    InvalidTimestampError,
    UnbuildableBatchError,
    UnsupportedCodecError,
    UnsupportedMagicError,
)
from stratalog.batch.frames import check_crc, codec_of, iter_batches
from stratalog.batch.header import (
    HEADER_BYTES,
    BatchHeader,
    BytesLike,
    Codec,
    TimestampType,
    parse_header,
)
from stratalog.batch.records import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Record,
    decode_records,
    iter_body,
    iter_records,
    records_bytes,
    true_max_timestamp,
)
from stratalog.batch.stamp import stamp, stamp_append_time, stamp_max_timestamp, stamp_run
from stratalog.batch.validate import validate

__all__ = [
    "DEFAULT_MAX_DECOMPRESSED_BYTES",
    "HEADER_BYTES",
    "BatchDamagedError",
    "BatchHeader",
    "BatchTooLargeError",
    "BytesLike",
    "Codec",
    "ControlType",
    "CrcMismatchError",
    "DecompressedTooLargeError",
    "EndTxnMarker",
    "InvalidBatchError",
    "InvalidTimestampError",
    "Record",
    "TimestampType",
    "UnbuildableBatchError",
    "UnsupportedCodecError",
    "UnsupportedMagicError",
    "build_batch",
    "check_crc",
    "codec_of",
    "compress",
    "control_type",
    "decode_records",
    "decompress",
    "end_txn_record",
    "iter_batches",
    "iter_body",
    "iter_records",
    "parse_end_txn_marker",
    "parse_header",
    "recompress",
    "records_bytes",
    "stamp",
    "stamp_append_time",
    "stamp_max_timestamp",
    "stamp_run",
    "true_max_timestamp",
    "validate",
]
