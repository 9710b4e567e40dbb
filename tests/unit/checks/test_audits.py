"""Audits of a segment: its indexes against its log, and its log against its row."""

import struct
from dataclasses import replace
from uuid import UUID

import pytest
from tests.unit.segment.runs import T0, batch, built, marker

from stratalog.batch.control import ControlType
from stratalog.batch.frames import iter_batches
from stratalog.batch.stamp import stamp_run
from stratalog.checks.index_audit import IndexAudit
from stratalog.checks.log_audit import LogAudit
from stratalog.control.segments.model import Segment, SegmentState
from stratalog.ids import Offset, PartitionIndex, SegmentId, TopicId
from stratalog.segment.build import BuiltLog
from stratalog.segment.epoch_checkpoint import encode_checkpoint
from stratalog.segment.model import IndexKind
from stratalog.segment.producer_state import PartitionTail, advance
from stratalog.segment.txn_index import encode_aborted


def segment_of(log: BuiltLog) -> Segment:
    return Segment(
        segment_id=SegmentId(UUID(int=5)),
        topic_id=TopicId(UUID(int=1)),
        partition=PartitionIndex(0),
        base_offset=log.base_offset,
        last_offset=log.last_offset,
        size_bytes=log.size_bytes,
        max_timestamp=log.max_timestamp,
        leader_epochs=log.leader_epochs,
        key_base="segments/5",
        state=SegmentState.COPY_FINISHED,
        chained=True,
        owned=True,
        added_ms=0,
        changed_ms=0,
        uploaded=None,
    )


class Made:
    """A segment, its log and its indexes, to be damaged by a test."""

    def __init__(self, *batches: bytes, tail: PartitionTail | None = None) -> None:
        log = built(100, *batches)
        self.before = tail
        self.segment = segment_of(log)
        self.data = bytearray(b"".join(batches))
        stamp_run(self.data, base_offset=100, leader_epoch=0)
        after, aborted = advance(tail or PartitionTail(), log)
        self.indexes = {
            IndexKind.OFFSET: log.offset_index,
            IndexKind.TIMESTAMP: log.time_index,
            IndexKind.PRODUCER_SNAPSHOT: after.to_snapshot(),
            IndexKind.LEADER_EPOCH: encode_checkpoint(log.leader_epochs),
            IndexKind.TRANSACTION: encode_aborted(aborted),
        }

    def adopted(self) -> "Made":
        self.segment = replace(self.segment, owned=False, store_url="file:theirs")
        return self

    def problems(self) -> list[str]:
        log = LogAudit(self.segment)
        indexes = IndexAudit(self.segment, self.indexes, self.before)
        view = memoryview(self.data)
        for position, header in iter_batches(view):
            body = view[position : position + header.size_bytes]
            indexes.step(position, header, body if log.step(position, header, body) else None)
        log.finish()
        indexes.finish()
        found = [problem.text for problem in (*log.problems, *indexes.problems)]
        assert all(text.startswith("segment 100 to ") for text in found)
        return [text.partition(": ")[2] for text in found]

    def entry(self, kind: IndexKind, number: int, *values: int) -> None:
        """Overwrite an entry."""
        entry = struct.Struct(">ii" if kind is IndexKind.OFFSET else ">qi")
        data = bytearray(self.indexes[kind])
        entry.pack_into(data, number * entry.size, *values)
        self.indexes[kind] = bytes(data)

    def entries(self, kind: IndexKind) -> list[tuple[int, int]]:
        return [
            *struct.iter_unpack(">ii" if kind is IndexKind.OFFSET else ">qi", self.indexes[kind])
        ]


def large(count: int = 2, *, timestamp: int = T0) -> bytes:
    """A batch of some kilobytes: with the one before it, enough for an entry."""
    return batch(count, value_bytes=1500, timestamp=timestamp)


def plain() -> Made:
    return Made(*(large(timestamp=T0 + 10 * number) for number in range(8)))


def test_a_segment_as_it_is_built_is_right() -> None:
    made = plain()
    assert len(made.entries(IndexKind.OFFSET)) == 3
    assert made.problems() == []
    assert made.adopted().problems() == []


# The log.


def test_a_wrong_crc_is_named_with_its_offset() -> None:
    made = plain()
    made.data[-1] ^= 1
    (text,) = made.problems()
    assert text.startswith("the batch of offset 114, at byte")
    assert "CRC" in text


def test_a_missing_batch_is_damage_unless_kafka_wrote_the_segment() -> None:
    made = plain()
    size = len(large())
    del made.data[size : 2 * size]
    made.indexes = {}
    assert made.problems() == [
        f"the batch of offset 104, at byte {size} of segments/5.log: the next offset is 102"
    ]
    assert made.adopted().problems() == []


def test_a_repeated_batch_is_damage_whoever_wrote_it() -> None:
    made = plain().adopted()
    made.data += made.data[: len(large())]
    made.indexes = {}
    assert "the next offset is 116" in made.problems()[0]


def test_a_log_that_ends_too_early_or_too_late_is_damaged() -> None:
    made = plain()
    made.indexes = {}
    made.segment = replace(made.segment, last_offset=Offset(116))
    assert made.problems() == ["its log ends with offset 115"]
    made.segment = replace(made.segment, last_offset=Offset(114))
    assert "it ends with offset 115" in made.problems()[0]


def test_an_epoch_that_the_row_does_not_say_is_damage() -> None:
    made = plain()
    made.indexes = {}
    stamp_run(made.data, base_offset=100, leader_epoch=1)
    assert "the bytes say epoch 1, the row 0" in made.problems()[0]


# Offset and time index.


@pytest.mark.parametrize("change", [-1, 1])
def test_an_offset_that_is_off_by_one_is_found(change: int) -> None:
    for made in (plain(), plain().adopted()):
        relative, position = made.entries(IndexKind.OFFSET)[1]
        made.entry(IndexKind.OFFSET, 1, relative + change, position)
        assert len([text for text in made.problems() if "offset index" in text]) == 1


@pytest.mark.parametrize("change", [-1, 1])
def test_a_position_that_is_off_by_one_is_found(change: int) -> None:
    for made in (plain(), plain().adopted()):
        relative, position = made.entries(IndexKind.OFFSET)[1]
        made.entry(IndexKind.OFFSET, 1, relative, position + change)
        expected = f"its offset index: entry 1 points at byte {position + change}, where no batch"
        assert any(text.startswith(expected) for text in made.problems())


def test_an_entry_for_several_batches_is_right_if_kafka_wrote_it() -> None:
    """Before 4.1 it names the first position and the last offset of a whole append."""
    made = plain()
    relative, position = made.entries(IndexKind.OFFSET)[1]
    made.entry(IndexKind.OFFSET, 1, relative + 2, position)
    assert made.problems() != []
    assert made.adopted().problems() == []


def test_a_last_entry_whose_offset_never_comes_is_found() -> None:
    made = plain().adopted()
    relative, position = made.entries(IndexKind.OFFSET)[2]
    made.entry(IndexKind.OFFSET, 2, relative + 100, position)
    assert made.problems() == [
        f"its offset index: its last entry names offset {200 + relative}, with which no batch ends"
    ]


@pytest.mark.parametrize("removed", [0, 1, 2])
def test_an_entry_that_is_missing_is_found(removed: int) -> None:
    made = plain()
    data = made.indexes[IndexKind.OFFSET]
    made.indexes[IndexKind.OFFSET] = data[: 8 * removed] + data[8 * removed + 8 :]
    assert "but none after" in made.problems()[0]
    assert made.adopted().problems() == []


@pytest.mark.parametrize("kind", [IndexKind.OFFSET, IndexKind.TIMESTAMP])
def test_an_index_that_makes_no_sense_is_named(kind: IndexKind) -> None:
    made = plain()
    made.indexes[kind] += b"x"
    (text,) = made.problems()
    assert text.startswith(f"its {kind} index: ")
    assert "not a multiple" in text


@pytest.mark.parametrize("change", [-1, 1])
def test_a_time_that_is_off_by_one_is_found(change: int) -> None:
    made = plain()
    timestamp, relative = made.entries(IndexKind.TIMESTAMP)[1]
    made.entry(IndexKind.TIMESTAMP, 1, timestamp + change, relative)
    assert made.problems() == ["its timestamp index: entry 1 is not the one that its log makes"]
    # One that is too late only makes a search begin too early.
    assert bool(made.adopted().problems()) == (change < 0)


def test_a_time_index_that_ends_too_early_is_found() -> None:
    made = plain()
    made.indexes[IndexKind.TIMESTAMP] = made.indexes[IndexKind.TIMESTAMP][:-12]
    assert "entry 3 is not the one that its log makes" in made.problems()[0]


# Transactions, producers, epochs.


def transactional(*, first: bool = True) -> Made:
    """A transaction that is aborted, and one that is committed."""
    data = [batch(2, producer_id=7, transactional=True)] if first else []
    return Made(
        *data,
        batch(1, producer_id=8, transactional=True),
        marker(ControlType.ABORT, 7),
        marker(ControlType.COMMIT, 8),
    )


def test_aborted_transactions_and_their_index_agree() -> None:
    made = transactional()
    assert made.indexes[IndexKind.TRANSACTION]
    assert made.problems() == []


def test_an_abort_that_the_index_does_not_know_is_found() -> None:
    made = transactional()
    made.indexes[IndexKind.TRANSACTION] = b""
    assert made.problems() == [
        "its transaction index: it does not say that producer 7 aborted at offset 103"
    ]


@pytest.mark.parametrize(("producer_id", "offset"), [(7, 104), (8, 103), (8, 104), (9, 103)])
def test_an_abort_that_never_was_is_found(producer_id: int, offset: int) -> None:
    made = transactional()
    made.indexes[IndexKind.TRANSACTION] += struct.pack(">hqqqq", 0, producer_id, 100, offset, 200)
    if offset == 103:
        made.indexes[IndexKind.TRANSACTION] = made.indexes[IndexKind.TRANSACTION][34:]
    expected = f"it says that producer {producer_id} aborted at offset {offset}, which is not so"
    assert any(expected in text for text in made.problems())


def test_a_transaction_that_began_before_the_segment_may_have_an_entry_or_none() -> None:
    made = transactional(first=False)
    assert made.indexes[IndexKind.TRANSACTION] == b""
    assert made.problems() == []
    made.indexes[IndexKind.TRANSACTION] = struct.pack(">hqqqq", 0, 7, 50, 101, 100)
    assert made.problems() == []
    made.before = PartitionTail()
    assert "producer 7 aborted at offset 101, which is not so" in made.problems()[0]


@pytest.mark.parametrize("last_stable", [99, 101, 104, 10**9])
def test_a_wrong_last_stable_offset_is_found(last_stable: int) -> None:
    made = transactional()
    # When 7 aborts at 103, 8 is open since 102. Below the segment, others may have been open.
    made.indexes[IndexKind.TRANSACTION] = struct.pack(">hqqqq", 0, 7, 100, 103, last_stable)
    if last_stable < 100:
        assert made.problems() == []
        made.before = PartitionTail()
    (text,) = made.problems()
    assert text.startswith(f"its transaction index: it says that all before offset {last_stable}")


@pytest.mark.parametrize("first_offset", [99, 101, 103])
def test_a_wrong_first_offset_of_a_transaction_is_found(first_offset: int) -> None:
    made = transactional()
    made.indexes[IndexKind.TRANSACTION] = struct.pack(">hqqqq", 0, 7, first_offset, 103, 102)
    if first_offset < 100:
        assert made.problems() == []
        made.before = PartitionTail()
    (text,) = made.problems()
    assert f"the transaction that producer 7 aborted at offset 103 began at {first_offset}" in text


def test_what_was_open_before_the_segment_is_expected_in_its_index() -> None:
    opened = built(50, *(batch(1, producer_id=name, transactional=True) for name in (6, 7)))
    tail = advance(PartitionTail(), opened)[0]
    made = Made(marker(ControlType.ABORT, 7), marker(ControlType.ABORT, 6), tail=tail)
    assert made.problems() == []
    right = made.indexes[IndexKind.TRANSACTION]
    assert right == struct.pack(">hqqqqhqqqq", 0, 7, 51, 100, 50, 0, 6, 50, 101, 102)
    made.indexes[IndexKind.TRANSACTION] = right[34:]
    assert "does not say that producer 7 aborted at offset 100" in made.problems()[0]
    made.before = None
    assert made.problems() == []


def test_a_producer_that_wrote_after_the_end_is_found() -> None:
    made = transactional()
    made.indexes[IndexKind.PRODUCER_SNAPSHOT] = PartitionTail.from_snapshot(
        made.indexes[IndexKind.PRODUCER_SNAPSHOT]
    ).to_snapshot()
    assert made.problems() == []
    later = advance(PartitionTail(), built(200, batch(1, producer_id=7)))[0]
    made.indexes[IndexKind.PRODUCER_SNAPSHOT] = later.to_snapshot()
    assert made.problems() == ["its producerSnapshot index: a producer wrote at offset 200"]


@pytest.mark.parametrize("kind", [IndexKind.PRODUCER_SNAPSHOT, IndexKind.LEADER_EPOCH])
def test_a_snapshot_or_checkpoint_that_does_not_decode_is_named(kind: IndexKind) -> None:
    made = transactional()
    made.indexes[kind] = b"nonsense"
    (text,) = made.problems()
    assert text.startswith(f"its {kind} index: ")


def test_a_checkpoint_of_other_epochs_is_found() -> None:
    made = transactional()
    made.indexes[IndexKind.LEADER_EPOCH] = b"0\n1\n3 0\n"
    (text,) = made.problems()
    assert "has epochs 0 from 100, its checkpoint 3 from 100" in text
