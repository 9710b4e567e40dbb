import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from tests.unit.batch.edits import edit
from tests.unit.block.entries import entry

from stratalog.batch.entry import EntryBatch
from stratalog.batch.header import TimestampType, parse_header
from stratalog.batch.records import Record, iter_records
from stratalog.block.block import OpenBlock, seal
from stratalog.block.errors import RowDamagedError
from stratalog.block.fresh_blocks import FreshBlocks
from stratalog.block.reader import BlockReader
from stratalog.clock import SystemClock
from stratalog.control.log.model import Coordinates
from stratalog.ids import BrokerId, LeaderEpoch, ObjectId, Offset
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.open import open_store
from stratalog.objects.store import Buffer, ObjectStore, Range
from stratalog.objects.wrapped import WrappedStore
from stratalog.pieces import PiecesRead, PiecesWanted


@pytest.fixture
def store() -> ObjectStore:
    return open_store("memory:", clock=SystemClock())


@pytest.fixture
def reader(store: ObjectStore) -> BlockReader:
    return BlockReader(store=store, cache=FreshBlocks(0))


async def stored_row(
    store: ObjectStore,
    *batches: EntryBatch,
    base_offset: int = 0,
    number: int = 1,
    damage_at: int | None = None,
) -> Coordinates:
    """One object that holds the batches, and the row that describes them."""
    block = OpenBlock()
    block.add(batches)
    result = seal(block, object_id=ObjectId(UUID(int=number)), broker_id=BrokerId(1), created_ms=1)
    data = bytearray(b"".join(result.parts))
    if damage_at is not None:
        data[damage_at] ^= 0xFF
    await store.put(result.commit.key, [data])
    records = sum(batch.header.records_count for batch in batches)
    return Coordinates(
        topic_id=batches[0].topic_id,
        partition=batches[0].partition,
        base_offset=Offset(base_offset),
        last_offset=Offset(base_offset + records - 1),
        object_id=result.commit.object_id,
        object_key=result.commit.key,
        byte_offset=0,
        byte_size=sum(len(batch.data) for batch in batches),
        max_timestamp=2000,
        timestamp_type=batches[0].timestamp_type,
        committed_ms=9000,
        leader_epoch=LeaderEpoch(5),
        stamped=False,
    )


async def read(
    reader: BlockReader, *rows: Coordinates, offset: int = 0, max_bytes: int = 1 << 20
) -> PiecesRead:
    want = PiecesWanted(offset=Offset(offset), max_bytes=max_bytes, pieces=rows)
    return (await reader.read([want]))[0]


def records(answer: PiecesRead) -> list[Record]:
    return list(iter_records(b"".join(answer.parts)))


async def test_batches_come_stamped_with_running_offsets(
    store: ObjectStore, reader: BlockReader
) -> None:
    row = await stored_row(store, entry(records=2), entry(records=3), base_offset=10)
    answer = await read(reader, row, offset=10)
    assert [record.offset for record in records(answer)] == [10, 11, 12, 13, 14]
    assert parse_header(b"".join(answer.parts)).leader_epoch == 5
    assert answer.error is None


async def test_log_append_time_is_the_commits(store: ObjectStore, reader: BlockReader) -> None:
    row = await stored_row(store, entry(timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert [record.timestamp for record in records(await read(reader, row))] == [9000]


async def test_an_answer_begins_with_the_batch_that_holds_the_offset(
    store: ObjectStore, reader: BlockReader
) -> None:
    row = await stored_row(store, entry(records=2), entry(records=2), entry(records=2))
    answer = await read(reader, row, offset=3)
    assert [record.offset for record in records(answer)] == [2, 3, 4, 5]


async def test_an_answer_ends_at_its_bytes_but_holds_one_batch_at_least(
    store: ObjectStore, reader: BlockReader
) -> None:
    row = await stored_row(store, entry(), entry(), entry())
    size = len(entry().data)
    assert len(records(await read(reader, row, max_bytes=1))) == 1
    assert len(records(await read(reader, row, max_bytes=2 * size - 1))) == 1
    assert len(records(await read(reader, row, max_bytes=2 * size))) == 2


async def test_a_damaged_batch_ends_the_answer_after_the_good_ones(
    store: ObjectStore, reader: BlockReader
) -> None:
    size = len(entry().data)
    row = await stored_row(store, entry(), entry(), entry(), damage_at=size + 65)
    answer = await read(reader, row)
    assert [record.offset for record in records(answer)] == [0]
    assert isinstance(answer.error, RowDamagedError)


async def test_the_read_of_a_damaged_batch_names_the_object_and_the_offset(
    store: ObjectStore, reader: BlockReader
) -> None:
    row = await stored_row(store, entry(), damage_at=65, base_offset=77)
    answer = await read(reader, row, offset=77)
    assert not answer.parts
    assert row.object_key in str(answer.error)
    assert "77" in str(answer.error)


async def test_a_row_that_promises_more_offsets_than_its_bytes_hold_is_damaged(
    store: ObjectStore, reader: BlockReader
) -> None:
    row = await stored_row(store, entry(records=2))
    longer = row._replace(last_offset=Offset(5))
    answer = await read(reader, longer, offset=2)
    assert isinstance(answer.error, RowDamagedError)


async def test_one_partitions_trouble_is_not_the_others(
    store: ObjectStore, reader: BlockReader
) -> None:
    good = await stored_row(store, entry(1), number=1)
    gone = await stored_row(store, entry(2), number=2)
    await store.delete([gone.object_key])
    wanted = [PiecesWanted(offset=Offset(0), max_bytes=1000, pieces=[row]) for row in (gone, good)]
    lost, found = await reader.read(wanted)
    assert isinstance(lost.error, ObjectNotFoundError)
    assert len(records(found)) == 1


async def test_stamped_bytes_are_checked_against_their_row(
    store: ObjectStore, reader: BlockReader
) -> None:
    row = await stored_row(store, entry())
    stamped = row._replace(stamped=True)
    assert (await read(reader, stamped)).error is None
    elsewhere = stamped._replace(base_offset=Offset(8), last_offset=Offset(8))
    assert isinstance((await read(reader, elsewhere, offset=8)).error, RowDamagedError)


# Ranges that are read, and checks.


class Watched(WrappedStore):
    """Notes the ranges that are read."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.ranges: list[Range] = []

    async def get_ranges(
        self,
        key: str,
        ranges: Sequence[Range],
        *,
        into: Sequence[memoryview] | None = None,
        mapped: bool = False,
    ) -> list[Buffer]:
        self.ranges += ranges
        return await super().get_ranges(key, ranges, into=into, mapped=mapped)


async def test_a_consumer_comes_back_for_the_rest_of_a_row_and_not_for_the_row(
    store: ObjectStore,
) -> None:
    watched = Watched(store)
    reader = BlockReader(store=watched, cache=FreshBlocks(0))
    row = await stored_row(store, *(entry(records=2) for _ in range(6)), base_offset=40)
    size = len(entry(records=2).data)
    answers = [await read(reader, row, offset=40, max_bytes=2 * size)]
    answers.append(await read(reader, row, offset=44, max_bytes=3 * size))
    answers.append(await read(reader, row, offset=50, max_bytes=3 * size))
    assert [record.offset for each in answers for record in records(each)] == list(range(40, 52))
    assert [answer.next_offset for answer in answers] == [44, 50, 52]
    assert watched.ranges == [
        Range(0, 6 * size),
        Range(2 * size, 6 * size),
        Range(5 * size, 6 * size),
    ]
    assert answers[-1].ended


async def test_the_last_row_of_an_answer_is_read_as_far_as_there_is_room(
    store: ObjectStore,
) -> None:
    watched = Watched(store)
    reader = BlockReader(store=watched, cache=FreshBlocks(0))
    size = len(entry().data)
    first = await stored_row(store, entry(), entry(), number=1)
    second = await stored_row(store, entry(), entry(), entry(), base_offset=2, number=2)
    answer = await read(reader, first, second, max_bytes=3 * size + size // 2)
    assert [record.offset for record in records(answer)] == [0, 1, 2]
    assert (answer.next_offset, answer.ended, answer.error) == (3, False, None)
    assert watched.ranges == [Range(0, 2 * size), Range(0, size + size // 2)]
    rest = await read(reader, second, offset=3)
    assert [record.offset for record in records(rest)] == [3, 4]
    assert watched.ranges[-1] == Range(size, 3 * size)


async def test_an_answer_that_is_all_but_full_does_not_begin_a_row_that_does_not_fit(
    store: ObjectStore,
) -> None:
    watched = Watched(store)
    reader = BlockReader(store=watched, cache=FreshBlocks(0))
    size = len(entry().data)
    first = await stored_row(store, *(entry() for _ in range(8)), number=1)
    second = await stored_row(store, entry(), entry(), base_offset=8, number=2)
    answer = await read(reader, first, second, max_bytes=9 * size)
    assert (answer.next_offset, answer.ended, answer.error) == (8, False, None)
    assert watched.ranges == [Range(0, 8 * size)]
    small = await stored_row(store, entry(), base_offset=8, number=3)
    whole = await read(reader, first, small, max_bytes=9 * size)
    assert (whole.next_offset, whole.ended) == (9, True)


async def test_an_answer_from_many_batches_is_one_piece_of_memory(
    store: ObjectStore, reader: BlockReader
) -> None:
    row = await stored_row(store, *(entry() for _ in range(50)))
    answer = await read(reader, row, offset=10)
    assert len(answer.parts) == 1
    assert [record.offset for record in records(answer)] == list(range(10, 50))


async def test_damage_before_the_wanted_batch_is_noticed_where_offsets_follow_from_it(
    store: ObjectStore, reader: BlockReader
) -> None:
    row = await stored_row(store, entry(records=2), entry(), entry(), damage_at=26)
    answer = await read(reader, row, offset=3)
    assert not answer.parts
    assert isinstance(answer.error, RowDamagedError)


@pytest.mark.parametrize("damage_at", [8, 16, 17, 26, 65])
@pytest.mark.parametrize("timestamp_type", list(TimestampType))
async def test_no_damaged_batch_goes_out_whole_or_in_parts_of_a_row(
    store: ObjectStore, timestamp_type: TimestampType, damage_at: int
) -> None:
    batch = entry(records=2, timestamp_type=timestamp_type)
    size = len(batch.data)
    row = await stored_row(store, *[batch] * 4, damage_at=2 * size + damage_at)
    reader = BlockReader(store=store, cache=FreshBlocks(0))
    good = await read(reader, row, max_bytes=size)
    good_too = await read(reader, row, offset=2)
    assert [record.offset for record in [*records(good), *records(good_too)]] == [0, 1, 2, 3]
    bad = await read(reader, row, offset=4)
    assert not bad.parts
    assert isinstance(bad.error, RowDamagedError)


async def test_negative_counts_of_offsets_are_damage(
    store: ObjectStore, reader: BlockReader
) -> None:
    backwards = edit(bytes(entry(records=2).data), last_offset_delta=-2)
    row = await stored_row(store, entry(records=2)._replace(data=memoryview(backwards)))
    assert "negative" in str((await read(reader, row)).error)


class Parallel(WrappedStore):
    """Notes the most reads that are under way at one time."""

    most = now = 0

    async def get_ranges(self, key: str, ranges: Sequence[Range], **how: Any) -> list[Buffer]:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        answer = await super().get_ranges(key, ranges, **how)
        self.now -= 1
        return answer


async def test_an_answer_from_thin_blocks_takes_a_bounded_number_of_requests(
    store: ObjectStore,
) -> None:
    watched = Parallel(store)
    reader = BlockReader(store=watched, cache=FreshBlocks(0))
    rows = [await stored_row(store, entry(), base_offset=n, number=n + 1) for n in range(300)]
    answer = await read(reader, *rows)
    assert (watched.most, answer.next_offset, answer.ended, answer.error) == (128, 128, False, None)
    rest = await read(reader, *rows[128:], offset=128)
    assert [record.offset for record in records(rest)] == list(range(128, 256))


async def test_every_partition_has_a_row_in_an_answer_from_many_objects(
    store: ObjectStore,
) -> None:
    watched = Parallel(store)
    reader = BlockReader(store=watched, cache=FreshBlocks(0))
    rows = [await stored_row(store, entry(), number=n + 1) for n in range(300)]
    more = [await stored_row(store, entry(), base_offset=1, number=n + 301) for n in range(300)]
    answers = await reader.read(
        [
            PiecesWanted(offset=Offset(0), max_bytes=1 << 20, pieces=pair)
            for pair in zip(rows, more, strict=True)
        ]
    )
    assert watched.most == 128
    assert {answer.next_offset for answer in answers} == {1, 2}
    assert sum(answer.next_offset - 1 for answer in answers) == 64
