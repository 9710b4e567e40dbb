import pytest

from stratalog.ids import Offset, ProducerId
from stratalog.segment.errors import IndexDamagedError
from stratalog.segment.model import AbortedTransaction
from stratalog.segment.txn_index import aborted_between, decode_aborted, encode_aborted


def aborted(producer_id: int, first: int, last: int, stable: int) -> AbortedTransaction:
    return AbortedTransaction(ProducerId(producer_id), Offset(first), Offset(last), Offset(stable))


ENTRIES = [aborted(1, 10, 20, 15), aborted(2, 15, 30, 25), aborted(3, 25, 40, 41)]


def test_entries_are_read_as_they_were_written() -> None:
    data = encode_aborted(ENTRIES)
    assert len(data) == 3 * 34
    assert decode_aborted(memoryview(data)) == ENTRIES
    assert encode_aborted([]) == b""
    assert decode_aborted(b"") == []


@pytest.mark.parametrize(
    ("first", "end", "found"),
    [
        (0, 10, []),
        (0, 11, [1]),
        (20, 21, [1, 2]),
        (21, 22, [2]),
        (30, 31, [2, 3]),
        (31, 32, [3]),
        (41, 50, []),
    ],
)
def test_transactions_are_found_by_the_records_they_may_have(
    first: int, end: int, found: list[int]
) -> None:
    search = aborted_between(ENTRIES, Offset(first), Offset(end))
    assert [each.producer_id for each in search.transactions] == found


@pytest.mark.parametrize(("end", "complete"), [(15, True), (25, True), (41, True), (42, False)])
def test_an_entry_whose_stable_offset_reaches_the_end_completes_the_search(
    end: int, complete: bool
) -> None:
    assert aborted_between(ENTRIES, Offset(0), Offset(end)).complete is complete


def test_nothing_behind_the_proof_is_looked_at() -> None:
    later = aborted(4, 12, 50, 51)
    found = aborted_between([ENTRIES[0], later], Offset(0), Offset(15))
    assert found.transactions == [ENTRIES[0]]


def test_no_entries_prove_nothing() -> None:
    assert aborted_between([], Offset(0), Offset(1)) == ([], False)


def test_a_length_that_is_no_multiple_is_damage() -> None:
    with pytest.raises(IndexDamagedError, match="35 bytes are not a multiple of 34"):
        decode_aborted(bytes(35))


def test_another_version_is_refused() -> None:
    data = bytearray(encode_aborted(ENTRIES))
    data[34 + 1] = 1
    with pytest.raises(IndexDamagedError, match="entry 1 has version 1"):
        decode_aborted(data)


@pytest.mark.parametrize(
    "entries",
    [[ENTRIES[1], ENTRIES[0]], [ENTRIES[0], ENTRIES[0]], [aborted(1, 5, 4, 9)]],
)
def test_entries_out_of_order_are_damage(entries: list[AbortedTransaction]) -> None:
    with pytest.raises(IndexDamagedError, match="spans"):
        decode_aborted(encode_aborted(entries))


def test_zero_padding_is_damage() -> None:
    with pytest.raises(IndexDamagedError, match="entry 3 spans 0 to 0"):
        decode_aborted(encode_aborted(ENTRIES) + bytes(34))
