import io
import struct

import pytest
import pyzstd
import zstandard
from tests.unit.segment.layout_golden import LOG

from stratalog.segment.chunk_encoding import ChunkEncoder
from stratalog.segment.errors import SeekTableDamagedError
from stratalog.segment.seek_table import (
    FOOTER_BYTES,
    SeekEntry,
    decode_seek_table,
    encode_seek_table,
    frame_checksum,
    seek_table_bytes,
)

ENTRIES = [SeekEntry(30, 100, 1), SeekEntry(20, 100, 0xFFFF_FFFF), SeekEntry(10, 50, 7)]
TABLE = encode_seek_table(ENTRIES)


def seekable_log(chunk_bytes: int = 100_000) -> bytes:
    encoder = ChunkEncoder(chunk_bytes, True, None)
    chunks = encoder.push(LOG)
    end = encoder.finish()
    return b"".join([*chunks, *end.parts, end.seek_table])


def test_a_table_comes_back_as_it_was_written() -> None:
    assert decode_seek_table(TABLE, "x.log") == ENTRIES
    assert seek_table_bytes(TABLE[-FOOTER_BYTES:], "x.log") == len(TABLE)


def test_a_table_has_the_bytes_of_the_format() -> None:
    assert encode_seek_table([SeekEntry(2, 3, 4)]).hex() == (
        "5e2a4d18150000000200000003000000040000000100000080b1ea928f"
    )


def test_a_table_without_checksums_is_read_too() -> None:
    table = struct.pack("<IIIIIBI", 0x184D2A5E, 17, 5, 9, 1, 0, 0x8F92EAB1)
    assert decode_seek_table(table, "x.log") == [SeekEntry(5, 9, None)]


def test_a_table_that_another_writer_made_is_read() -> None:
    file = io.BytesIO()
    with pyzstd.SeekableZstdFile(file, "w", max_frame_content_size=1000) as writer:
        writer.write(bytes(2500))
    data = file.getvalue()
    table = data[-seek_table_bytes(data[-FOOTER_BYTES:], "x") :]
    sizes = [entry.original_bytes for entry in decode_seek_table(table, "x")]
    assert [size for size in sizes if size] == [1000, 1000, 500]


@pytest.mark.parametrize("position", [0, 4, len(TABLE) - 9, len(TABLE) - 5, len(TABLE) - 1])
def test_damage_to_the_frame_or_the_footer_names_the_object(position: int) -> None:
    damaged = bytearray(TABLE)
    damaged[position] ^= 0x40
    with pytest.raises(SeekTableDamagedError, match=r"x\.log"):
        decode_seek_table(damaged, "x.log")


@pytest.mark.parametrize("cut", [0, 3, 8, len(TABLE) - 1])
def test_a_table_that_was_cut_names_the_object(cut: int) -> None:
    with pytest.raises(SeekTableDamagedError, match=r"x\.log"):
        decode_seek_table(TABLE[:cut], "x.log")


def test_the_checksum_is_the_low_half_of_xxh64() -> None:
    # XXH64 of nothing is 0xEF46DB3751D8E999.
    assert frame_checksum(b"") == 0x51D8E999


def test_a_compressed_log_opens_in_a_seekable_reader_at_any_place() -> None:
    with pyzstd.SeekableZstdFile(io.BytesIO(seekable_log())) as reader:
        for position in (700_000, 0, 99_999, 100_000, len(LOG) - 1):
            reader.seek(position)
            assert reader.read(300) == LOG[position : position + 300]


def test_a_compressed_log_opens_in_a_plain_reader() -> None:
    stream = zstandard.ZstdDecompressor().stream_reader(seekable_log(), read_across_frames=True)
    assert stream.read() == LOG
