import struct

import pytest

from stratalog.ids import Offset
from stratalog.segment.errors import IndexDamagedError
from stratalog.segment.time_index import TimeIndex, TimeIndexWriter

BASE = Offset(1000)
ENTRIES = [(100, 9), (200, 19), (300, 29)]


def index(*entries: tuple[int, int]) -> TimeIndex:
    return TimeIndex(b"".join(struct.pack(">qi", *entry) for entry in entries), BASE)


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [(0, 1000), (100, 1000), (101, 1010), (200, 1010), (201, 1020), (300, 1020), (301, 1030)],
)
def test_a_lookup_starts_after_everything_that_is_earlier(timestamp: int, offset: int) -> None:
    assert index(*ENTRIES).lookup(timestamp) == offset


def test_an_empty_index_starts_at_the_base() -> None:
    empty = TimeIndex(b"", BASE)
    empty.check(BASE)
    assert len(empty) == 0
    assert empty.lookup(5) == BASE


def test_only_a_greater_timestamp_is_appended() -> None:
    writer = TimeIndexWriter(BASE)
    writer.maybe_append(-1, 1000)
    for timestamp, offset in [(0, 1001), (0, 1002), (5, 1003), (4, 1004), (6, 1005)]:
        writer.maybe_append(timestamp, offset)
    assert list(struct.iter_unpack(">qi", writer.to_bytes())) == [(0, 1), (5, 3), (6, 5)]


def test_a_good_index_passes_up_to_the_last_offset() -> None:
    index(*ENTRIES).check(Offset(1029))
    with pytest.raises(IndexDamagedError, match="offset 29 is beyond the segment's last, 28"):
        index(*ENTRIES).check(Offset(1028))


def test_one_entry_of_zeros_is_a_record_at_time_zero() -> None:
    index((0, 0)).check(BASE)


def test_a_length_that_is_no_multiple_is_damage() -> None:
    with pytest.raises(IndexDamagedError, match="13 bytes are not a multiple of 12"):
        TimeIndex(bytes(13), BASE)


@pytest.mark.parametrize("entries", [[(0, 0), (0, 0)], [*ENTRIES, (0, 0)]])
def test_zero_padding_is_named(entries: list[tuple[int, int]]) -> None:
    with pytest.raises(IndexDamagedError, match="ends in zeros"):
        index(*entries).check(Offset(9999))


@pytest.mark.parametrize(
    "entries", [[(100, 9), (100, 10)], [(100, 9), (99, 10)], [(100, 9), (101, 8)]]
)
def test_entries_that_do_not_rise_are_damage(entries: list[tuple[int, int]]) -> None:
    with pytest.raises(IndexDamagedError, match=r"entry 1 is .* does not rise"):
        index(*entries).check(Offset(9999))


@pytest.mark.parametrize("entry", [(-1, 5), (5, -1)])
def test_negative_entries_are_damage(entry: tuple[int, int]) -> None:
    with pytest.raises(IndexDamagedError, match="entry 0"):
        index(entry).check(Offset(9999))
