import pytest
from tests.unit.batch.edits import edit, sample, with_body

from stratalog.batch.errors import (
    BatchDamagedError,
    CrcMismatchError,
    UnsupportedCodecError,
    UnsupportedMagicError,
)
from stratalog.batch.frames import check_crc, codec_of, iter_batches
from stratalog.batch.header import HEADER_BYTES, Codec, pack_header, parse_header


def test_an_empty_buffer_has_no_batches() -> None:
    assert list(iter_batches(b"")) == []


def test_batches_are_found_one_after_the_other() -> None:
    first, second = sample(), sample(Codec.ZSTD)
    found = list(iter_batches(first + second))
    assert [position for position, _ in found] == [0, len(first)]
    assert [header.size_bytes for _, header in found] == [len(first), len(second)]


def test_walking_can_start_at_a_later_batch() -> None:
    batch = sample()
    assert [position for position, _ in iter_batches(batch * 3, len(batch))] == [
        len(batch),
        2 * len(batch),
    ]


@pytest.mark.parametrize("cut", [1, 16, 17, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 1])
def test_a_cut_second_batch_names_the_end_and_its_own_start(cut: int) -> None:
    batch = sample()
    walk = iter_batches(batch + batch[:cut])
    next(walk)
    with pytest.raises(BatchDamagedError) as caught:
        next(walk)
    assert caught.value.position == len(batch) + cut
    assert caught.value.batch_start == len(batch)


def test_a_batch_that_lacks_one_byte_is_damage() -> None:
    batch = sample()
    with pytest.raises(BatchDamagedError) as caught:
        parse_header(batch[:-1])
    assert caught.value.position == len(batch) - 1


def test_another_magic_is_named_at_its_byte() -> None:
    batch = bytearray(sample())
    batch[16] = 1
    with pytest.raises(UnsupportedMagicError) as caught:
        parse_header(batch)
    assert (caught.value.position, caught.value.magic) == (16, 1)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, HEADER_BYTES - 12 - 1])
def test_a_length_without_room_for_a_header_is_damage(length: int) -> None:
    with pytest.raises(BatchDamagedError) as caught:
        parse_header(edit(sample(), length=length))
    assert caught.value.position == 8


def test_a_batch_of_nothing_but_a_header_has_a_frame() -> None:
    assert parse_header(with_body(sample(), b"")).size_bytes == HEADER_BYTES


def test_the_header_is_packed_as_it_was_read() -> None:
    batch = sample(Codec.LZ4)
    assert pack_header(parse_header(batch)) == batch[:HEADER_BYTES]


def test_a_good_crc_passes_wherever_the_batch_lies() -> None:
    batch = sample()
    check_crc(b"xyz" + batch + b"more", 3, parse_header(batch))


@pytest.mark.parametrize("position", [21, 40, HEADER_BYTES, -1])
def test_a_flipped_byte_is_a_crc_mismatch_at_byte_17(position: int) -> None:
    batch = bytearray(b"12345" + sample())
    batch[position + 5 if position > 0 else position] ^= 1
    with pytest.raises(CrcMismatchError) as caught:
        check_crc(batch, 5, parse_header(batch, 5))
    assert (caught.value.position, caught.value.batch_start) == (22, 5)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_known_codec_is_named(codec: Codec) -> None:
    assert codec_of(parse_header(sample(codec)), 0) is codec


@pytest.mark.parametrize("bits", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_damage_at_the_attributes(bits: int) -> None:
    with pytest.raises(UnsupportedCodecError) as caught:
        codec_of(parse_header(edit(sample(), attributes=bits)), 100)
    assert caught.value.position == 122
