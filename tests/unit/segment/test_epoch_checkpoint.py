import pytest

from stratalog.control.segments.model import EpochStart
from stratalog.ids import LeaderEpoch, Offset
from stratalog.segment.epoch_checkpoint import decode_checkpoint, encode_checkpoint
from stratalog.segment.errors import EpochCheckpointDamagedError, SegmentRefusedError


def epochs(*pairs: tuple[int, int]) -> list[EpochStart]:
    return [EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in pairs]


def test_it_is_lines_of_text() -> None:
    assert encode_checkpoint(epochs((0, 0), (3, 5000))) == b"0\n2\n0 0\n3 5000\n"
    assert decode_checkpoint(b"0\n2\n0 0\n3 5000\n") == epochs((0, 0), (3, 5000))


def test_without_epochs_there_is_a_count_of_none() -> None:
    assert encode_checkpoint([]) == b"0\n0\n"
    assert decode_checkpoint(b"0\n0\n") == []


def test_line_ends_of_another_system_are_read() -> None:
    assert decode_checkpoint(b"0\r\n1\r\n4  7\r\n") == epochs((4, 7))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "no version and count"),
        (b"0\n", "no version and count"),
        (b"1\n0\n", "version is '1'"),
        (b"0\n2\n0 0\n", "'2' entries and has 1"),
        (b"0\n0\n0 0\n", "'0' entries and has 1"),
        (b"0\n1\n0\n", "'0' is not an epoch and an offset"),
        (b"0\n1\n0 0 0\n", "'0 0 0' is not"),
        (b"0\n1\na b\n", "'a b' is not"),
        (b"0\n1\n\xff 0\n", "not text"),
        (b"0\n1\n-1 0\n", "epoch -1"),
        (b"0\n1\n0 -1\n", "offset -1"),
        (b"0\n2\n1 0\n1 5\n", "epoch 1 from offset 5 on comes after epoch 1"),
        (b"0\n2\n1 5\n2 5\n", "epoch 2 from offset 5 on comes after"),
        (b"0\n2\n1 5\n2 4\n", "epoch 2 from offset 4 on comes after"),
    ],
)
def test_damage_is_named(text: bytes, reason: str) -> None:
    with pytest.raises(EpochCheckpointDamagedError, match=reason):
        decode_checkpoint(text)


def test_epochs_that_do_not_rise_are_not_written() -> None:
    with pytest.raises(SegmentRefusedError, match="epoch 1 from offset 9 on comes after epoch 2"):
        encode_checkpoint(epochs((2, 0), (1, 9)))
