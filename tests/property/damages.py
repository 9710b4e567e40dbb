"""Damaged batches: the records in them, and strategies that change bytes."""

from collections.abc import Callable

from crc32c import crc32c
from hypothesis import strategies as st

from stratalog.batch.header import (
    CRC_POSITION,
    CRC_START,
    HEADER_BYTES,
)
from stratalog.batch.records import Record

RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value" * 20, (("name", b"content"), ("none", None))),
    Record(1, 1_700_000_000_900, None, b"value" * 50),
    Record(2, 1_600_000_000_000, b"k" * 100, None, (("", b""),)),
    Record(3, 1_700_000_000_001, b"", b"\x00\x01\x02" * 30),
]


@st.composite
def damages(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """A function that flips, cuts, inserts, removes or repeats bytes somewhere."""
    kind = draw(st.sampled_from(["flip", "cut", "insert", "remove", "repeat", "set"]))
    place = draw(st.one_of(st.floats(0, 1), st.integers(0, HEADER_BYTES)))
    noise = draw(st.binary(min_size=1, max_size=8))
    bit = draw(st.integers(0, 7))

    def damage(data: bytes) -> bytes:
        at = min(place, len(data) - 1) if isinstance(place, int) else int(place * (len(data) - 1))
        if kind == "flip":
            return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
        if kind == "set":
            return data[:at] + noise + data[at + len(noise) :]
        if kind == "cut":
            return data[:at]
        if kind == "insert":
            return data[:at] + noise + data[at:]
        if kind == "remove":
            return data[:at] + data[at + len(noise) :]
        return data[:at] + data[at : at + 30] + data[at:]

    return damage


def reseal(data: bytes) -> bytes:
    """Make length and CRC of a single batch agree with its bytes, to get past them."""
    if len(data) < HEADER_BYTES:
        return data
    sealed = bytearray(data)
    sealed[8:12] = (len(data) - 12).to_bytes(4)
    sealed[CRC_POSITION:CRC_START] = crc32c(sealed[CRC_START:]).to_bytes(4)
    return bytes(sealed)
