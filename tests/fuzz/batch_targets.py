"""Record batches: at entry, and in the decoders of readers, which must take every batch that was
let in."""

import struct
from collections.abc import Callable

from crc32c import crc32c
from tests.fuzz.judge import Case, Target
from tests.unit.batch.edits import RECORDS

from stratalog.batch.build import build_batch
from stratalog.batch.codec import compress, decompress
from stratalog.batch.columns import BatchRun, RecordColumn, RecordFilter, decode_run
from stratalog.batch.errors import BatchDamagedError
from stratalog.batch.header import CRC_POSITION, CRC_START, HEADER_BYTES, Codec, parse_header
from stratalog.batch.records import Record, decode_records, iter_times
from stratalog.batch.unpack import unpack_at
from stratalog.batch.validate import validate
from stratalog.errors import StratalogError

_MOST_BYTES = 1 << 20
_DECODED = 8
"""Of 256 batches, so many are decoded although they were not let in: finding the words for a fault
takes a hundred times as long as finding it."""
_READ = 8
"""Of 256 batches that were let in, so many are read: that takes thirty times as long. Compiled
loops decode many more (`compiled_targets`)."""
_CRC = struct.Struct(">I")
_LENGTH = struct.Struct(">i")
_ALL = RecordFilter(first_offset=0, end_offset=2**62)
_COLUMNS = list(RecordColumn)
RECORDS_TRIED = [
    *RECORDS,
    Record(3, 1_700_000_000_000, b"", b"", (("", b""),)),
    Record(4, 1_700_000_000_001, b"k" * 70, b"v" * 200, (("name", None), ("h" * 70, b"x" * 3))),
]


def batch_targets() -> list[Target]:
    batches = [build_batch(RECORDS_TRIED, codec=codec) for codec in Codec]
    body = batches[0][HEADER_BYTES:]
    packed = [Case(compress(codec, body), _unpacking(codec)) for codec in Codec]
    return [
        Target("batches as they come", 2.5, [Case(good, _enter) for good in batches]),
        Target("batches with a right checksum", 2, [Case(good, _summed) for good in batches]),
        Target("records in a batch", 1.6, [Case(body, _wrapped(codec)) for codec in Codec]),
        Target("compressed records", 1.6, packed),
    ]


def _enter(data: bytes) -> None:
    """Check a batch as a broker does. Some that pass are decoded in three ways."""
    header = parse_header(data)
    data = data[: header.size_bytes]
    greatest = validate(data, 0, header, deep=True, max_decompressed_bytes=_MOST_BYTES)
    if header.crc & 0xFF >= _READ:
        return
    try:
        records = decode_records(data)
        times = [time for _, time in iter_times(data, 0, header)]
        columns = decode_run(data, BatchRun(0, stamped=False), _COLUMNS, _ALL).columns
    except StratalogError as error:
        raise AssertionError("a batch was let in that readers refuse") from error
    assert len(records) == columns.num_rows == header.records_count
    assert [record.timestamp for record in records] == times
    assert greatest == max(-1, *times), "the greatest timestamp"
    assert columns.column("value").to_pylist() == [record.value for record in records]
    assert columns.column("key").to_pylist() == [record.key for record in records]


def _summed(data: bytes) -> None:
    if len(data) >= HEADER_BYTES:
        whole = bytearray(data)
        _LENGTH.pack_into(whole, 8, len(whole) - 12)
        _CRC.pack_into(whole, CRC_POSITION, crc32c(memoryview(whole)[CRC_START:]))
        data = bytes(whole)
        if data[CRC_POSITION] < _DECODED:
            _decode(data)
    _enter(data)


def _decode(data: bytes) -> None:
    """Decode a batch that no broker has checked, as readers of an adopted topic do."""
    try:
        decode_run(data, BatchRun(0), _COLUMNS, _ALL)
    except BatchDamagedError:
        return


def _wrapped(codec: Codec) -> Callable[[bytes], None]:
    head = build_batch(RECORDS_TRIED, codec=codec)[:HEADER_BYTES]

    def run(body: bytes) -> None:
        whole = bytearray(head + compress(codec, body))
        _LENGTH.pack_into(whole, 8, len(whole) - 12)
        _CRC.pack_into(whole, CRC_POSITION, crc32c(memoryview(whole)[CRC_START:]))
        _enter(bytes(whole))

    return run


def _unpacking(codec: Codec) -> Callable[[bytes], None]:
    """Both ways of decompressing agree, and keep to their bound."""

    def run(data: bytes) -> None:
        found = bytes(unpack_at(0, codec, data, 1000))
        assert len(found) <= 1000
        assert found == decompress(codec, data, max_bytes=1000), "two ways of decompressing differ"

    return run
