"""Batches with one field changed and a CRC that agrees, to reach the checks behind the CRC."""

from crc32c import crc32c

from stratalog.batch.build import build_batch
from stratalog.batch.header import (
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    Codec,
    pack_header,
    parse_header,
)
from stratalog.batch.records import Record

RECORDS = [
    Record(0, 1_700_000_000_000, b"k0", b"v0", (("h", b"1"), ("n", None))),
    Record(1, 1_700_000_000_005, None, b"v1"),
    Record(2, 1_699_999_999_999, b"k2", None),
]


def sample(codec: Codec = Codec.NONE) -> bytes:
    return build_batch(RECORDS, codec=codec)


def edit(batch: bytes, **fields: int) -> bytes:
    """The batch with these header fields; the CRC follows unless it is given."""
    header = parse_header(batch)._replace(**fields)
    body = batch[HEADER_BYTES:]
    crc = crc32c(pack_header(header)[CRC_START:] + body)
    return pack_header(header._replace(crc=fields.get("crc", crc))) + body


def with_body(batch: bytes, body: bytes) -> bytes:
    """The batch with other bytes in place of its records; length and CRC follow."""
    length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body)
    header = parse_header(batch)._replace(length=length)
    crc = crc32c(pack_header(header)[CRC_START:] + body)
    return pack_header(header._replace(crc=crc)) + body
