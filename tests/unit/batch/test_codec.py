import gzip
import random
import struct

import cramjam
import lz4.frame
import pytest
import snappy

from stratalog.batch.codec import LEVELS, compress, decompress
from stratalog.batch.errors import (
    BatchDamagedError,
    DecompressedTooLargeError,
    UnbuildableBatchError,
)
from stratalog.batch.header import Codec

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
DATA = b"".join(b"record %d;" % number for number in range(20_000))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"x", DATA])
def test_what_was_compressed_comes_back(codec: Codec, data: bytes) -> None:
    packed = compress(codec, memoryview(data))
    assert decompress(codec, memoryview(packed), max_bytes=len(data)) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_output_may_reach_the_bound_and_not_pass_it(codec: Codec) -> None:
    packed = compress(codec, DATA)
    assert decompress(codec, packed, max_bytes=len(DATA)) == DATA
    with pytest.raises(DecompressedTooLargeError):
        decompress(codec, packed, max_bytes=len(DATA) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_is_refused(codec: Codec) -> None:
    bomb = compress(codec, bytes(50_000_000))
    with pytest.raises(DecompressedTooLargeError) as caught:
        decompress(codec, bomb, max_bytes=1_000_000, position=61)
    assert caught.value.position >= 61


@pytest.mark.parametrize("codec", COMPRESSING)
def test_high_ratios_within_the_bound_are_fine(codec: Codec) -> None:
    zeros = bytes(3_000_000)
    assert decompress(codec, compress(codec, zeros), max_bytes=len(zeros)) == zeros


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("junk", [b"", b"\x03", b"junk", b"\xff" * 64])
def test_junk_is_damage(codec: Codec, junk: bytes) -> None:
    with pytest.raises(BatchDamagedError):
        decompress(codec, junk, max_bytes=1000)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_cut_stream_is_damage(codec: Codec) -> None:
    packed = compress(codec, DATA)
    for cut in (1, 5, len(packed) // 2):
        with pytest.raises(BatchDamagedError):
            decompress(codec, packed[:-cut], max_bytes=len(DATA))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_bytes_after_the_stream_are_damage(codec: Codec) -> None:
    with pytest.raises(BatchDamagedError):
        decompress(codec, compress(codec, DATA) + b"abc", max_bytes=len(DATA))


def test_bytes_after_an_lz4_frame_are_named() -> None:
    packed = compress(Codec.LZ4, DATA)
    with pytest.raises(BatchDamagedError) as caught:
        decompress(Codec.LZ4, packed + b"abc", max_bytes=len(DATA), position=61)
    assert caught.value.position == 61 + len(packed)


def test_gzip_is_read_by_the_standard_library() -> None:
    assert gzip.decompress(compress(Codec.GZIP, DATA)) == DATA


def test_lz4_is_a_frame_of_independent_64_kib_blocks_without_checksums() -> None:
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, DATA))
    assert info["block_size"] == 64 * 1024
    assert not info["block_linked"]
    assert not info["block_checksum"]
    assert not info["content_checksum"]
    assert info["content_size"] == 0


def test_linked_lz4_blocks_of_other_writers_are_read() -> None:
    packed = lz4.frame.compress(DATA, block_linked=True, content_checksum=True)
    assert decompress(Codec.LZ4, packed, max_bytes=len(DATA)) == DATA


def test_snappy_is_written_in_xerial_blocks_of_32_kib() -> None:
    packed = compress(Codec.SNAPPY, DATA)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    (block_bytes,) = struct.unpack_from(">i", packed, 16)
    assert snappy.uncompress(packed[20 : 20 + block_bytes]) == DATA[: 32 * 1024]


def test_raw_snappy_is_read() -> None:
    assert decompress(Codec.SNAPPY, snappy.compress(DATA), max_bytes=len(DATA)) == DATA


def test_two_xerial_streams_are_read_as_one() -> None:
    twice = compress(Codec.SNAPPY, DATA) * 2
    assert decompress(Codec.SNAPPY, twice, max_bytes=2 * len(DATA)) == DATA * 2


@pytest.mark.parametrize("block_bytes", [-1, 6, 2**31 - 1])
def test_a_xerial_block_must_lie_inside_the_stream(block_bytes: int) -> None:
    header = compress(Codec.SNAPPY, b"")
    stream = header + struct.pack(">i", block_bytes) + bytes(5)
    with pytest.raises(BatchDamagedError) as caught:
        decompress(Codec.SNAPPY, stream, max_bytes=1000, position=100)
    assert caught.value.position == 100 + len(header)


def test_a_snappy_block_that_claims_impossible_growth_is_damage() -> None:
    claims_gigabytes = b"\xff\xff\xff\xff\x07" + bytes(10)
    with pytest.raises(BatchDamagedError, match="do not make"):
        decompress(Codec.SNAPPY, claims_gigabytes, max_bytes=2**40)


def test_the_text_by_which_a_full_buffer_is_known_still_holds() -> None:
    packed = cramjam.zstd.compress(DATA)
    with pytest.raises(cramjam.DecompressionError, match="failed to write whole buffer"):
        cramjam.zstd.decompress_into(packed, bytearray(10))


@pytest.mark.parametrize("codec", list(LEVELS))
def test_levels_work_up_to_their_ends_and_not_beyond(codec: Codec) -> None:
    levels = LEVELS[codec]
    for level in (max(levels.start, -1000), levels.stop - 1):
        packed = compress(codec, DATA[:1000], level)
        assert decompress(codec, packed, max_bytes=1000) == DATA[:1000]
    for level in (levels.start - 1, levels.stop):
        with pytest.raises(UnbuildableBatchError):
            compress(codec, DATA[:1000], level)


def test_a_higher_level_compresses_more() -> None:
    draw = random.Random(7)
    words = [draw.randbytes(draw.randrange(2, 9)) for _ in range(300)]
    text = b" ".join(draw.choice(words) for _ in range(10_000))
    for codec in LEVELS:
        assert len(compress(codec, text, 9)) < len(compress(codec, text, 1))
