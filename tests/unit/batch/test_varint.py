import pytest

from stratalog.batch.errors import BatchDamagedError, UnbuildableBatchError
from stratalog.batch.varint import read_varint, read_varlong, write_varint, write_varlong


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_known_values_are_written_and_read(value: int, encoded: str) -> None:
    out = bytearray()
    write_varint(out, value)
    assert out.hex() == encoded
    assert read_varint(bytes(out), 0) == (value, len(out))
    assert read_varlong(b"\xff" + bytes(out), 1) == (value, len(out) + 1)


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63)])
def test_the_widest_long_takes_ten_bytes(value: int) -> None:
    out = bytearray()
    write_varlong(out, value)
    assert len(out) == 10
    assert read_varlong(bytes(out), 0) == (value, 10)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_a_wider_value_is_not_written_as_an_int(value: int) -> None:
    with pytest.raises(UnbuildableBatchError):
        write_varint(bytearray(), value)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_a_wider_value_is_not_written_as_a_long(value: int) -> None:
    with pytest.raises(UnbuildableBatchError):
        write_varlong(bytearray(), value)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff\xff"])
def test_data_that_ends_inside_an_int_is_damage_at_its_end(data: bytes) -> None:
    with pytest.raises(BatchDamagedError) as caught:
        read_varint(data, 0)
    assert caught.value.position == len(data)


def test_data_that_ends_inside_a_long_is_damage_at_its_end() -> None:
    with pytest.raises(BatchDamagedError) as caught:
        read_varlong(b"\xff" * 9, 0)
    assert caught.value.position == 9


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x1f", b"\xff\xff\xff\xff\x80\x00"])
def test_an_int_over_32_bits_or_5_bytes_is_damage_at_its_fifth_byte(data: bytes) -> None:
    with pytest.raises(BatchDamagedError) as caught:
        read_varint(data, 0)
    assert caught.value.position == 4


@pytest.mark.parametrize("last", [b"\x03", b"\x80\x00"])
def test_a_long_over_64_bits_or_10_bytes_is_damage_at_its_tenth_byte(last: bytes) -> None:
    with pytest.raises(BatchDamagedError) as caught:
        read_varlong(b"\xff" * 9 + last, 0)
    assert caught.value.position == 9
