import tracemalloc
from uuid import UUID

from tests.unit.block.entries import entry

from stratalog.batch.entry import EntryBatch
from stratalog.batch.frames import check_crc, iter_batches
from stratalog.batch.header import TimestampType, parse_header
from stratalog.batch.records import decode_records
from stratalog.block.block import OpenBlock, SealedBlock, seal
from stratalog.block.fresh_blocks import FreshBlocks
from stratalog.control.log.model import CommitAnswer, CommitOutcome
from stratalog.ids import BrokerId, LeaderEpoch, ObjectId, Offset


def sealed(*batches: EntryBatch, number: int = 1) -> SealedBlock:
    block = OpenBlock()
    block.add(batches)
    object_id = ObjectId(UUID(int=number))
    return seal(block, object_id=object_id, broker_id=BrokerId(1), created_ms=1)


def accepted(offset: int, *, append_time_ms: int = 5000) -> CommitAnswer:
    return CommitAnswer(
        outcome=CommitOutcome.ACCEPTED,
        base_offset=Offset(offset),
        append_time_ms=append_time_ms,
        leader_epoch=LeaderEpoch(7),
    )


def found(
    cache: FreshBlocks, object_id: ObjectId, start: int = 0, end: int = 1 << 30, offset: int = 0
) -> list[bytes]:
    """Each batch in these bytes of a block, from the one that holds the offset."""
    row = cache.find(object_id, start, end)
    if row is None:
        return []
    answer = row.select(Offset(offset), 1 << 30, at_least_one=True)
    data = b"".join(answer.parts)
    assert answer.size_bytes == len(data)
    return [data[at : at + header.size_bytes] for at, header in iter_batches(data)]


def test_a_fresh_batch_comes_stamped_and_the_uploaded_bytes_stay_as_they_were() -> None:
    block = sealed(entry(records=3))
    before = bytes(block.batches[0].data)
    cache = FreshBlocks(10_000)
    cache.add(block, [accepted(40)])
    (batch,) = found(cache, block.commit.object_id, end=len(before))
    header = parse_header(batch)
    assert (header.base_offset, header.leader_epoch, header.last_offset) == (40, 7, 42)
    check_crc(batch, 0, header)
    assert bytes(block.batches[0].data) == before


def test_log_append_time_is_stamped_with_the_commits_time() -> None:
    block = sealed(entry(timestamp_type=TimestampType.LOG_APPEND_TIME))
    cache = FreshBlocks(10_000)
    cache.add(block, [accepted(0, append_time_ms=777)])
    (batch,) = found(cache, block.commit.object_id)
    check_crc(batch, 0, parse_header(batch))
    assert [record.timestamp for record in decode_records(batch)] == [777]


def test_rejected_batches_are_not_served() -> None:
    block = sealed(entry(value=b"a"), entry(value=b"b"), entry(value=b"c"))
    cache = FreshBlocks(10_000)
    rejected = CommitAnswer(outcome=CommitOutcome.OUT_OF_ORDER_SEQUENCE)
    cache.add(block, [accepted(0), rejected, accepted(1)])
    batches = found(cache, block.commit.object_id)
    assert [parse_header(batch).last_offset for batch in batches] == [0, 1]


def test_a_range_selects_the_batches_that_begin_in_it() -> None:
    block = sealed(entry(), entry(), entry())
    cache = FreshBlocks(10_000)
    cache.add(block, [accepted(0), accepted(1), accepted(2)])
    size = len(block.batches[0].data)
    (batch,) = found(cache, block.commit.object_id, size, 2 * size)
    assert parse_header(batch).last_offset == 1


def test_an_answer_begins_with_the_batch_that_holds_its_offset() -> None:
    block = sealed(entry(records=3), entry(records=3), entry(records=3))
    cache = FreshBlocks(10_000)
    cache.add(block, [accepted(0), accepted(3), accepted(6)])
    batches = found(cache, block.commit.object_id, offset=4)
    assert [parse_header(batch).base_offset for batch in batches] == [3, 6]


def test_an_answer_has_the_batches_for_which_there_is_room() -> None:
    block = sealed(entry(), entry(), entry())
    cache = FreshBlocks(10_000)
    cache.add(block, [accepted(0), accepted(1), accepted(2)])
    size = len(block.batches[0].data)
    row = cache.find(block.commit.object_id, 0, 3 * size)
    assert row is not None
    for max_bytes, at_least_one, next_offset in (
        (2 * size - 1, False, 1),
        (2 * size, False, 2),
        (9 * size, False, 3),
        (1, False, 0),
        (1, True, 1),
    ):
        answer = row.select(Offset(0), max_bytes, at_least_one=at_least_one)
        assert (answer.next_offset, answer.size_bytes) == (next_offset, next_offset * size)
        assert answer.reaches_end == (next_offset == 3)


def test_every_reader_is_handed_the_same_memory() -> None:
    block = sealed(entry(), entry())
    cache = FreshBlocks(10_000)
    cache.add(block, [accepted(0), accepted(1)])
    row = cache.find(block.commit.object_id, 0, block.commit.size_bytes)
    assert row is not None
    first, second = (row.select(Offset(0), 1000, at_least_one=True).parts for _ in range(2))
    assert all(one is other for one, other in zip(first, second, strict=True))


def test_the_least_recently_used_block_leaves_when_memory_is_short() -> None:
    blocks = [sealed(entry(value=bytes(1000)), number=number) for number in range(3)]
    cache = FreshBlocks(3500)
    for block in blocks[:2]:
        cache.add(block, [accepted(0)])
    cache.find(blocks[0].commit.object_id, 0, 1)
    cache.add(blocks[2], [accepted(0)])
    assert cache.find(blocks[1].commit.object_id, 0, 1) is None
    assert cache.find(blocks[0].commit.object_id, 0, 1) is not None
    assert cache.size_bytes <= 3500


def test_a_block_larger_than_the_cache_is_not_kept() -> None:
    block = sealed(entry(value=bytes(5000)))
    cache = FreshBlocks(3500)
    cache.add(block, [accepted(0)])
    assert cache.find(block.commit.object_id, 0, 1) is None
    assert cache.size_bytes == 0


def in_frame(batch: EntryBatch, *, padding: int) -> EntryBatch:
    """The batch as a view into the frame of a request that has other bytes, too."""
    size = len(batch.data)
    return batch._replace(data=memoryview(bytearray(batch.data) + bytes(padding))[:size])


def test_tiny_batches_of_large_requests_do_not_keep_the_requests_in_memory() -> None:
    cache = FreshBlocks(1_000_000)
    tracemalloc.start()
    try:
        for number in range(50):
            block = sealed(in_frame(entry(), padding=1_000_000), number=number)
            cache.add(block, [accepted(number)])
        del block
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_000_000
    (batch,) = found(cache, ObjectId(UUID(int=7)), offset=7)
    check_crc(batch, 0, parse_header(batch))
    assert decode_records(batch)[0].value == b"value"


def test_batches_that_make_up_most_of_their_request_are_not_copied() -> None:
    one = bytes(entry(value=bytes(1000)).data)
    frame = bytearray(one * 4)
    batches = [
        entry(value=bytes(1000))._replace(data=memoryview(frame)[start : start + len(one)])
        for start in range(0, 3 * len(one), len(one))
    ]
    cache = FreshBlocks(10_000)
    block = sealed(*batches)
    cache.add(block, [accepted(offset) for offset in range(3)])
    row = cache.find(block.commit.object_id, 0, 4 * len(one))
    assert row is not None
    parts = row.select(Offset(0), 10_000, at_least_one=True).parts
    assert [getattr(part, "obj", None) is frame for part in parts[1::2]] == [True] * 3
