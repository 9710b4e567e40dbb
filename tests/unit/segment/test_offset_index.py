import struct

import pytest

from stratalog.ids import Offset
from stratalog.segment.errors import IndexDamagedError
from stratalog.segment.offset_index import OffsetIndex, OffsetIndexWriter

BASE = Offset(1000)
ENTRIES = [(10, 500), (20, 1000), (30, 1500)]


def index(*entries: tuple[int, int]) -> OffsetIndex:
    return OffsetIndex(b"".join(struct.pack(">ii", *entry) for entry in entries), BASE)


@pytest.mark.parametrize(
    ("offset", "span"),
    [
        (900, (0, 1000)),
        (1000, (0, 1000)),
        (1009, (0, 1000)),
        (1010, (500, 1500)),
        (1019, (500, 1500)),
        (1020, (1000, None)),
        (1030, (1500, None)),
        (9999, (1500, None)),
    ],
)
def test_a_span_goes_from_the_entry_before_to_the_second_entry_after(
    offset: int, span: tuple[int, int | None]
) -> None:
    found = index(*ENTRIES)
    assert found.span(Offset(offset)) == span
    assert found.lookup(Offset(offset)) == span[0]


def test_an_empty_index_says_nothing() -> None:
    empty = OffsetIndex(b"", BASE)
    empty.check(0)
    assert len(empty) == 0
    assert empty.span(Offset(1005)) == (0, None)


def test_what_is_written_is_read() -> None:
    writer = OffsetIndexWriter(BASE)
    writer.append(1010, 500)
    writer.append(1000 + 2**31 - 1, 2**31 - 1)
    found = OffsetIndex(memoryview(writer.to_bytes()), BASE)
    found.check(2**31)
    assert len(found) == 2
    assert found.lookup(Offset(1000 + 2**31 - 1)) == 2**31 - 1


def test_a_good_index_passes_up_to_the_last_byte_of_the_log() -> None:
    index(*ENTRIES).check(1501)
    with pytest.raises(IndexDamagedError, match="position 1500 is not within the log's 1500"):
        index(*ENTRIES).check(1500)


def test_a_length_that_is_no_multiple_is_damage() -> None:
    with pytest.raises(IndexDamagedError, match="segment at 1000: 9 bytes are not a multiple of 8"):
        OffsetIndex(bytes(9), BASE)


@pytest.mark.parametrize("entries", [[(0, 0)], [*ENTRIES, (0, 0)], [*ENTRIES, (0, 0), (0, 0)]])
def test_zero_padding_is_named(entries: list[tuple[int, int]]) -> None:
    with pytest.raises(IndexDamagedError, match="ends in zeros"):
        index(*entries).check(9999)


@pytest.mark.parametrize(
    "entries",
    [
        [(10, 500), (10, 600)],
        [(10, 500), (9, 600)],
        [(10, 500), (11, 500)],
        [(10, 500), (11, 499)],
        [(10, 500), (0, 0), (11, 600)],
    ],
)
def test_entries_that_do_not_rise_are_damage(entries: list[tuple[int, int]]) -> None:
    with pytest.raises(IndexDamagedError, match=r"entry 1 is .* does not rise"):
        index(*entries).check(9999)


@pytest.mark.parametrize("entry", [(-1, 5), (5, -1)])
def test_negative_entries_are_damage(entry: tuple[int, int]) -> None:
    with pytest.raises(IndexDamagedError, match="entry 0"):
        index(entry).check(9999)


@pytest.mark.parametrize(
    ("position", "entry"),
    [(0, 0), (1, 500), (500, 500), (501, 1000), (1500, 1500), (1501, 1800), (1800, 1800)],
)
def test_every_byte_leads_to_the_first_entry_that_is_not_before_it(
    position: int, entry: int
) -> None:
    assert index(*ENTRIES).entry_from(position, 1800) == entry
