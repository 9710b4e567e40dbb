"""Whatever happens to the bytes, the answer is a typed error or the records that were sent."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.damages import RECORDS, damages, reseal

from stratalog.batch.build import build_batch, recompress
from stratalog.batch.codec import compress, decompress
from stratalog.batch.control import parse_end_txn_marker
from stratalog.batch.errors import BatchDamagedError, InvalidBatchError
from stratalog.batch.frames import iter_batches
from stratalog.batch.header import (
    HEADER_BYTES,
    Codec,
    parse_header,
)
from stratalog.batch.records import Record, decode_records
from stratalog.batch.stamp import stamp_run
from stratalog.batch.validate import validate

MAX_BYTES = 1_000_000
CODECS = pytest.mark.parametrize("codec", list(Codec))
CONTENTS = {record[1:] for record in RECORDS}


def check_order(*positions: int) -> None:
    assert list(positions) == sorted(positions)


def read_all(data: bytes) -> list[Record]:
    """Everything that a broker or reader does with bytes, as far as it gets."""
    records: list[Record] = []
    try:
        for position, header in iter_batches(data):
            decoded = decode_records(data, position, max_decompressed_bytes=MAX_BYTES)
            assert len(decoded) == header.records_count
            records += decoded
    except BatchDamagedError as error:
        check_order(0, error.batch_start, error.position, len(data))
    return records


def exercise(data: bytes) -> None:
    """Only typed errors may come out of the rest of the room."""
    steps: list[Callable[[], object]] = [
        lambda: validate(data, 0, parse_header(data)),
        lambda: validate(data, 0, parse_header(data), deep=True, max_decompressed_bytes=MAX_BYTES),
        lambda: stamp_run(bytearray(data), base_offset=7, leader_epoch=1),
        lambda: stamp_run(bytearray(data), base_offset=7, leader_epoch=1, append_time_ms=9),
        lambda: recompress(data, 0, Codec.LZ4, max_decompressed_bytes=MAX_BYTES),
        lambda: [parse_end_txn_marker(record) for record in decode_records(data)],
    ]
    for step in steps:
        try:
            step()
        except (BatchDamagedError, InvalidBatchError) as error:
            check_order(0, error.position, len(data))


@CODECS
@settings(max_examples=200, deadline=None)
@given(damage=damages(), count=st.integers(1, 3))
def test_damaged_bytes_never_pass_for_records(
    codec: Codec, damage: Callable[[bytes], bytes], count: int
) -> None:
    damaged = damage(build_batch(RECORDS, codec=codec) * count)
    assert {record[1:] for record in read_all(damaged)} <= CONTENTS
    exercise(damaged)


@CODECS
@settings(max_examples=300, deadline=None)
@given(damage=st.lists(damages(), min_size=1, max_size=3))
def test_damage_behind_a_good_crc_gives_typed_errors_only(
    codec: Codec, damage: list[Callable[[bytes], bytes]]
) -> None:
    damaged = build_batch(RECORDS, codec=codec)
    for step in damage:
        damaged = step(damaged) or b"\x00"
    damaged = reseal(damaged)
    read_all(damaged)
    exercise(damaged)


@settings(max_examples=200, deadline=None)
@given(
    damage=damages(),
    inner=st.binary(max_size=60),
    codec=st.sampled_from(list(Codec)),
    is_noise=st.booleans(),
)
def test_damaged_records_inside_good_compression_give_typed_errors_only(
    damage: Callable[[bytes], bytes], inner: bytes, codec: Codec, is_noise: bool
) -> None:
    plain = build_batch(RECORDS)
    body = inner if is_noise else damage(plain[HEADER_BYTES:])
    outer = bytearray(plain[:HEADER_BYTES] + compress(codec, body))
    outer[22] = codec
    sealed = reseal(bytes(outer))
    read_all(sealed)
    exercise(sealed)


@CODECS
@settings(max_examples=200, deadline=None)
@given(damage=damages(), noise=st.one_of(st.none(), st.binary(max_size=200)))
def test_damaged_compression_is_bounded_and_typed(
    codec: Codec, damage: Callable[[bytes], bytes], noise: bytes | None
) -> None:
    packed = damage(compress(codec, b"some text " * 500)) if noise is None else noise
    try:
        data = decompress(codec, packed, max_bytes=20_000, position=61)
    except BatchDamagedError as error:
        check_order(61, error.position, 61 + len(packed))
    else:
        assert len(data) <= 20_000


@CODECS
def test_every_bit_of_a_batch_is_guarded(codec: Codec) -> None:
    """Base offset and leader epoch are outside the CRC and may change; nothing else may."""
    batch = build_batch(RECORDS[:2], codec=codec)
    for index in range(len(batch) * 8):
        damaged = bytearray(batch)
        damaged[index // 8] ^= 1 << index % 8
        if index // 8 < 8 or 12 <= index // 8 < 16:
            assert [r[1:] for r in decode_records(damaged)] == [r[1:] for r in RECORDS[:2]]
        else:
            with pytest.raises(BatchDamagedError):
                decode_records(damaged)


@CODECS
def test_every_cut_of_a_batch_is_found_at_its_end(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    for end in range(1, len(batch)):
        with pytest.raises(BatchDamagedError) as caught:
            decode_records(batch[:end])
        assert caught.value.position == end
