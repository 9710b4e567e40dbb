from typing import Any

import pytest
from tests.unit.batch.edits import RECORDS, edit, sample, with_body

from stratalog.batch.build import build_batch
from stratalog.batch.errors import (
    BatchDamagedError,
    BatchTooLargeError,
    CrcMismatchError,
    InvalidBatchError,
    InvalidTimestampError,
    UnsupportedCodecError,
)
from stratalog.batch.header import HEADER_BYTES, Codec, parse_header
from stratalog.batch.validate import validate
from stratalog.errors import CallError


def check(batch: bytes, **options: Any) -> None:
    buffer = b"pad" + batch
    validate(buffer, 3, parse_header(buffer, 3), **options)


def refusal(batch: bytes, **options: Any) -> InvalidBatchError:
    with pytest.raises(InvalidBatchError) as caught:
        check(batch, **options)
    return caught.value


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("deep", [False, True])
def test_a_good_batch_passes(codec: Codec, deep: bool) -> None:
    check(sample(codec), deep=deep)


def test_a_wrong_crc_is_damage_at_its_byte() -> None:
    with pytest.raises(CrcMismatchError) as caught:
        check(edit(sample(), crc=1))
    assert caught.value.position == 3 + 17


def test_a_refusal_is_the_callers_mistake() -> None:
    assert isinstance(refusal(edit(sample(), base_offset=1)), CallError)


@pytest.mark.parametrize(
    ("fields", "position"),
    [
        ({"base_offset": 1}, 0),
        ({"base_offset": -1}, 0),
        ({"attributes": 0x20}, 21),  # Control.
        ({"attributes": 0x40}, 21),  # Delete horizon.
        ({"attributes": 0x80}, 21),  # The first unused bit.
        ({"attributes": -(2**15)}, 21),  # The last one.
        ({"attributes": 0x08}, 21),  # Append time.
        ({"records_count": 0}, 57),
        ({"records_count": -1}, 57),
        ({"records_count": 2}, 23),
        ({"last_offset_delta": 3}, 23),
        ({"last_offset_delta": -1}, 23),
        ({"producer_id": -2}, 43),
        ({"attributes": 0x10}, 43),  # Transactional without a producer.
        ({"producer_id": 0, "producer_epoch": -1, "base_sequence": 0}, 51),
        ({"producer_id": 0, "producer_epoch": 0, "base_sequence": -1}, 53),
        ({"max_timestamp": 1_699_999_999_999}, 35),
        ({"max_timestamp": -2}, 35),
    ],
)
def test_a_field_that_clients_may_not_send_is_named(fields: dict[str, int], position: int) -> None:
    assert refusal(edit(sample(), **fields)).position == 3 + position


@pytest.mark.parametrize(
    "fields",
    [
        {"producer_id": 0, "producer_epoch": 0, "base_sequence": 0},
        {"producer_id": 0, "producer_epoch": 0, "base_sequence": 0, "attributes": 0x10},
        {"base_sequence": 0},  # As aiokafka sends without idempotence.
        {"producer_epoch": 0},
        {"leader_epoch": 12},
        {"max_timestamp": -1},  # As Sarama sends.
        {"max_timestamp": 1_700_000_000_000},
        {"base_timestamp": -1, "max_timestamp": -1},
    ],
)
def test_what_clients_do_send_passes(fields: dict[str, int]) -> None:
    check(edit(sample(), **fields))


@pytest.mark.parametrize("bits", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_damage(bits: int) -> None:
    with pytest.raises(UnsupportedCodecError):
        check(edit(sample(), attributes=bits))


def test_more_records_than_bytes_allow_are_damage() -> None:
    check(with_body(sample(), bytes(21)))
    with pytest.raises(BatchDamagedError) as caught:
        check(with_body(sample(), bytes(20)))
    assert caught.value.position == 3 + 57
    with pytest.raises(BatchDamagedError):
        check(with_body(sample(Codec.ZSTD), b""))


def test_a_batch_may_be_as_large_as_the_topic_takes() -> None:
    batch = sample()
    check(batch, max_batch_bytes=len(batch))
    assert isinstance(refusal(batch, max_batch_bytes=len(batch) - 1), BatchTooLargeError)


def test_first_and_greatest_timestamp_lie_within_the_bounds() -> None:
    batch = sample()
    first, greatest = RECORDS[0].timestamp, RECORDS[1].timestamp
    check(batch, earliest_timestamp_ms=first, latest_timestamp_ms=greatest)
    early = refusal(batch, earliest_timestamp_ms=first + 1)
    late = refusal(batch, latest_timestamp_ms=greatest - 1)
    assert isinstance(early, InvalidTimestampError)
    assert isinstance(late, InvalidTimestampError)
    assert (early.position, late.position) == (3 + 27, 3 + 35)


def test_a_batch_without_timestamps_is_outside_no_bounds() -> None:
    batch = edit(sample(), base_timestamp=-1, max_timestamp=-1)
    check(batch, earliest_timestamp_ms=5, latest_timestamp_ms=6)


def test_deep_holds_every_record_against_the_bounds() -> None:
    bound = RECORDS[0].timestamp
    check(sample(), earliest_timestamp_ms=bound)
    check(sample(), earliest_timestamp_ms=bound - 1, deep=True)
    found = refusal(sample(), earliest_timestamp_ms=bound, deep=True)
    assert found.position == 3 + HEADER_BYTES
    assert "record 2" in found.reason


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_deep_finds_records_that_are_none(codec: Codec) -> None:
    batch = with_body(sample(codec), b"\x01" * 30)
    check(batch)
    with pytest.raises(BatchDamagedError):
        check(batch, deep=True)


def test_a_compacted_topic_needs_keys() -> None:
    check(build_batch(RECORDS[:1]), keys_required=True)
    assert "record 1" in refusal(sample(), keys_required=True).reason
