"""Making a record batch: from records, or from a batch that should be compressed otherwise."""

import struct
from collections.abc import Sequence

from crc32c import crc32c

from stratalog.batch.codec import compress
from stratalog.batch.errors import UnbuildableBatchError
from stratalog.batch.frames import check_crc
from stratalog.batch.header import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_POSITION,
    CRC_START,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    BytesLike,
    Codec,
    TimestampType,
    pack_header,
    parse_header,
)
from stratalog.batch.records import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Record,
    records_bytes,
    true_max_timestamp,
)
from stratalog.batch.varint import write_varint, write_varlong

_INT32_LAST = (1 << 31) - 1
_NULL = -1


def build_batch(
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    leader_epoch: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    delete_horizon_ms: int | None = None,
    last_offset: int | None = None,
    level: int | None = None,
) -> bytes:
    """One batch of these records, whose offsets are absolute and rise from `base_offset` on.

    `last_offset` is for compaction: a batch keeps its end when its last records are gone, and
    only then may it have no records at all.
    """
    base_timestamp = delete_horizon_ms
    if base_timestamp is None:
        base_timestamp = records[0].timestamp if records else -1
    flags = TIMESTAMP_TYPE_BIT * timestamp_type | TRANSACTIONAL_BIT * transactional
    flags |= CONTROL_BIT * control | DELETE_HORIZON_BIT * (delete_horizon_ms is not None)
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=2,
        crc=0,
        attributes=codec | flags,
        last_offset_delta=_last_delta(records, base_offset, last_offset),
        base_timestamp=base_timestamp,
        max_timestamp=true_max_timestamp(records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(records),
    )
    body = _encode_records(records, base_offset, base_timestamp)
    return _assemble(header, compress(codec, body, level) if records else b"")


def recompress(
    buffer: BytesLike,
    position: int,
    codec: Codec,
    level: int | None = None,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> bytes:
    """The same batch with its records compressed by `codec`; only length, codec and CRC change."""
    header = parse_header(buffer, position)
    check_crc(buffer, position, header)
    body = records_bytes(buffer, position, header, max_decompressed_bytes=max_decompressed_bytes)
    attributes = header.attributes & ~CODEC_MASK | codec
    return _assemble(
        header._replace(attributes=attributes), compress(codec, body, level) if body else b""
    )


def _last_delta(records: Sequence[Record], base_offset: int, last_offset: int | None) -> int:
    if last_offset is None:
        if not records:
            raise UnbuildableBatchError("a batch without records needs a last offset")
        last_offset = records[-1].offset
    highest = records[-1].offset if records else base_offset
    if not highest <= last_offset <= base_offset + _INT32_LAST:
        raise UnbuildableBatchError(f"no batch from {base_offset} ends at offset {last_offset}")
    return last_offset - base_offset


def _encode_records(records: Sequence[Record], base_offset: int, base_timestamp: int) -> bytearray:
    body = bytearray()
    offset_end = base_offset
    for record in records:
        if record.offset < offset_end:
            raise UnbuildableBatchError(f"offset {record.offset} comes after {offset_end - 1}")
        offset_end = record.offset + 1
        encoded = _encode_record(record, base_offset, base_timestamp)
        write_varint(body, len(encoded))
        body += encoded
    return body


def _encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytearray:
    out = bytearray(1)
    write_varlong(out, record.timestamp - base_timestamp)
    write_varint(out, record.offset - base_offset)
    _write_bytes(out, record.key)
    _write_bytes(out, record.value)
    write_varint(out, len(record.headers))
    for name, value in record.headers:
        try:
            _write_bytes(out, name.encode())
        except UnicodeEncodeError as error:
            raise UnbuildableBatchError(f"header name {name!r} is not Unicode text") from error
        _write_bytes(out, value)
    return out


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        write_varint(out, _NULL)
    else:
        write_varint(out, len(value))
        out += value


def _assemble(header: BatchHeader, body: bytes) -> bytes:
    length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body)
    if length > _INT32_LAST:
        raise UnbuildableBatchError(f"a batch of {length} bytes exceeds 2 GiB")
    try:
        prefix = bytearray(pack_header(header._replace(length=length)))
    except struct.error as error:
        raise UnbuildableBatchError(f"a field does not fit: {error}") from error
    crc = crc32c(body, crc32c(prefix[CRC_START:]))
    prefix[CRC_POSITION:CRC_START] = crc.to_bytes(4)
    return b"".join((prefix, body))
