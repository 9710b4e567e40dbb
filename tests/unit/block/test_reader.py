from uuid import UUID

import pytest
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
from stratalog.objects.store import ObjectStore
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
