"""Boundaries of batches, and their checksums."""

from collections.abc import Iterator

from crc32c import crc32c

from stratalog.batch.errors import CrcMismatchError, UnsupportedCodecError
from stratalog.batch.header import (
    CRC_POSITION,
    CRC_START,
    BatchHeader,
    BytesLike,
    Codec,
    parse_header,
)

CODEC_POSITION = 22
"""The attributes' low byte."""


def iter_batches(buffer: BytesLike, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Each batch's position and header up to the end of the buffer, which must end with a batch."""
    while position < len(buffer):
        header = parse_header(buffer, position)
        yield position, header
        position += header.size_bytes


def check_crc(buffer: BytesLike, position: int, header: BatchHeader) -> None:
    """Raise unless the CRC of the batch matches its bytes."""
    end = position + header.size_bytes
    actual = crc32c(memoryview(buffer)[position + CRC_START : end])
    if actual != header.crc:
        raise crc_mismatch(position, header.crc, actual)


def crc_mismatch(position: int, stated: int, actual: int) -> CrcMismatchError:
    reason = f"the CRC says {stated:08x}, the bytes make {actual:08x}"
    return CrcMismatchError(position + CRC_POSITION, reason, position)


def codec_of(header: BatchHeader, position: int) -> Codec:
    """The codec that the attributes name."""
    try:
        return Codec(header.codec_bits)
    except ValueError:
        reason = f"compression codec {header.codec_bits} does not exist"
        raise UnsupportedCodecError(position + CODEC_POSITION, reason, position) from None
