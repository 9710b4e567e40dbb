import struct
from collections.abc import Iterable

import pytest
from tests.unit.segment.runs import batch

from stratalog.batch.errors import BatchDamagedError
from stratalog.segment.batch_framing import whole_batches

BATCHES = [batch(1), batch(2), batch(3)]
DATA = b"".join(BATCHES)


def joined(pieces: Iterable[bytes | bytearray]) -> bytes:
    return b"".join(whole_batches(pieces))


@pytest.mark.parametrize("size", [1, 7, 12, 13, 61, len(BATCHES[0]), 200, len(DATA)])
def test_pieces_of_any_size_make_the_same_batches(size: int) -> None:
    pieces = [DATA[at : at + size] for at in range(0, len(DATA), size)]
    found = list(whole_batches(pieces))
    assert b"".join(found) == DATA
    ends = {len(BATCHES[0]), len(BATCHES[0] + BATCHES[1]), len(DATA)}
    position = 0
    for each in found:
        position += len(each)
        assert position in ends
        assert not each.readonly


def test_a_piece_that_can_be_written_to_is_not_copied() -> None:
    piece = bytearray(DATA)
    (found,) = whole_batches([piece])
    found[0] = 77
    assert piece[0] == 77


def test_a_piece_that_cannot_be_written_to_stays_as_it_is() -> None:
    (found,) = whole_batches([DATA])
    found[0] = 77
    assert DATA[0] == 0


def test_no_bytes_make_no_batches() -> None:
    assert joined([]) == joined([b"", b""]) == b""


@pytest.mark.parametrize("missing", [1, len(BATCHES[2]) - 12, len(BATCHES[2]) - 1])
def test_bytes_that_end_within_a_batch_are_damage(missing: int) -> None:
    with pytest.raises(BatchDamagedError, match="short of a batch") as caught:
        joined([DATA[:-missing]])
    assert caught.value.batch_start == len(DATA) - len(BATCHES[2])
    assert caught.value.position == len(DATA) - missing


@pytest.mark.parametrize("split", [0, 5, 11, 12, 20])
@pytest.mark.parametrize("size", [60, 1001, -1])
def test_an_absurd_length_is_refused_before_it_is_waited_for(size: int, split: int) -> None:
    absurd = bytearray(BATCHES[0] + BATCHES[1])
    start = len(BATCHES[0])
    struct.pack_into(">i", absurd, start + 8, size - 12)
    cut = start + split
    with pytest.raises(BatchDamagedError, match=f"a batch of {size} bytes") as caught:
        list(whole_batches([absurd[:cut], absurd[cut:]], max_batch_bytes=1000))
    assert caught.value.batch_start == start


def test_a_batch_may_be_exactly_as_large_as_the_limit() -> None:
    assert b"".join(whole_batches([DATA], max_batch_bytes=len(BATCHES[2]))) == DATA
