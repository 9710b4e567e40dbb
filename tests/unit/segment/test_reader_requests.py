"""The cost of reads of segments: requests and bytes."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.unit.segment.reading import MODES, Shelf, offsets, read
from tests.unit.segment.runs import batch

from stratalog.ids import Offset
from stratalog.metrics import Metrics
from stratalog.objects.store import Buffer, Range
from stratalog.objects.wrapped import WrappedStore
from stratalog.pieces import PiecesWanted, Start
from stratalog.segment.chunk_encoding import Encoding
from stratalog.segment.errors import ReaderClosedError
from stratalog.segment.model import IndexKind
from stratalog.segment.reader import SegmentReader
from stratalog.settings import RemoteSettings

MIB = 1 << 20
SIZE = len(batch(1, value_bytes=1000))


async def shelf_of(count: int, encoding: Encoding, *, batches: int = 300) -> Shelf:
    shelf = Shelf()
    for _ in range(count):
        await shelf.add([batch(1, value_bytes=1000) for _ in range(batches)], encoding)
    return shelf


async def landed() -> None:
    """Give background reads from memory the turns that they need."""
    for _ in range(50):
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("mode", MODES)
async def test_a_cold_read_costs_two_requests_and_a_warm_one_one(mode: str) -> None:
    shelf = await shelf_of(1, MODES[mode])
    reader = shelf.reader()
    for offset, requests in ((150, 2), (10, 3), (290, 4)):
        answer = await read(reader, shelf.segments, offset, max_bytes=1)
        assert (offsets(answer), shelf.requests) == ([offset], requests)


@pytest.mark.parametrize("mode", MODES)
async def test_a_fetch_with_its_share_costs_no_more(mode: str) -> None:
    shelf = await shelf_of(2, MODES[mode])
    reader = shelf.reader()
    want = PiecesWanted(offset=Offset(150), max_bytes=1 << 30, pieces=shelf.segments)
    [start] = await reader.locate([want])
    assert isinstance(start, Start)
    assert start.size_bytes > 0
    [answer] = await reader.read([replace(want, start=start)])
    assert (answer.ended, shelf.requests) == (True, 3)


async def test_the_request_for_one_record_of_a_plain_log_is_as_small_as_the_index_allows() -> None:
    shelf = await shelf_of(1, MODES["plain"])
    reader = shelf.reader()
    await reader.index(shelf.segments[0], IndexKind.OFFSET)
    before = shelf.bytes_read
    await read(reader, shelf.segments, 150, max_bytes=1)
    # Entries come once more than 4096 bytes lie between them: after four batches each.
    assert shelf.bytes_read - before <= 2 * 4 * SIZE


async def test_a_larger_read_of_a_plain_log_asks_for_what_it_may_answer_with() -> None:
    shelf = await shelf_of(1, MODES["plain"])
    reader = shelf.reader()
    await reader.index(shelf.segments[0], IndexKind.OFFSET)
    before = shelf.bytes_read
    await read(reader, shelf.segments, 150, max_bytes=50_000)
    assert shelf.bytes_read - before == 50_000


async def test_the_chunks_of_an_encoded_log_come_with_one_request_and_stay() -> None:
    shelf = await shelf_of(1, MODES["aes"])
    reader = shelf.reader()
    await reader.index(shelf.segments[0], IndexKind.OFFSET)
    assert shelf.requests == 1
    await read(reader, shelf.segments, 150, max_bytes=60_000)
    assert shelf.requests == 2
    await read(reader, shelf.segments, 160, max_bytes=40_000)
    assert shelf.requests == 2


async def test_random_reads_of_a_plain_log_leave_nothing_in_the_chunk_cache() -> None:
    shelf = await shelf_of(1, MODES["plain"])
    reader = shelf.reader()
    for turn in range(3):
        await read(reader, shelf.segments, 150, max_bytes=50_000)
        assert shelf.requests == 2 + turn


async def test_a_large_first_batch_of_a_segment_costs_one_request_when_warm() -> None:
    shelf = Shelf()
    segment = await shelf.add([batch(1, value_bytes=100_000) for _ in range(10)])
    reader = shelf.reader()
    assert offsets(await read(reader, [segment], 0, max_bytes=1)) == [0]
    assert shelf.requests == 2
    await reader.index(segment, IndexKind.OFFSET)
    assert offsets(await read(reader, [segment], 0, max_bytes=1)) == [0]
    assert shelf.requests == 4


async def test_a_sparse_index_does_not_make_a_small_read_large() -> None:
    shelf = Shelf()
    batches = [batch(1, value_bytes=100_000) for _ in range(100)]
    segment = await shelf.add(batches, interval_bytes=1 << 30)
    assert offsets(await read(shelf.reader(), [segment], 20, max_bytes=1)) == [20]
    assert (shelf.requests, shelf.bytes_read) == (1, 4 * MIB)
    assert offsets(await read(shelf.reader(), [segment], 90, max_bytes=1)) == [90]
    assert shelf.requests == 1 + 3


async def test_a_small_answer_does_not_keep_its_chunk_in_memory() -> None:
    shelf = await shelf_of(1, MODES["aes"])
    (part,) = (await read(shelf.reader(), shelf.segments, 0, max_bytes=1)).parts
    assert isinstance(part, memoryview)
    assert isinstance(part.obj, bytes)
    assert len(part.obj) == SIZE


async def test_an_index_that_is_empty_costs_nothing() -> None:
    shelf = Shelf()
    segment = await shelf.add([batch(2), batch(2)])
    answer = await read(shelf.reader(), [segment], 3)
    assert (offsets(answer), shelf.requests) == ([2, 3], 1)
    assert await shelf.reader().index(segment, IndexKind.TRANSACTION) == b""
    assert shelf.requests == 1


@pytest.mark.parametrize("mode", MODES)
async def test_concurrent_readers_share_the_index_and_the_chunks(mode: str) -> None:
    shelf = await shelf_of(1, MODES[mode])
    reader = shelf.reader()
    want = PiecesWanted(offset=Offset(150), max_bytes=1, pieces=shelf.segments)
    answers = await reader.read([want] * 8)
    assert all(offsets(answer) == [150] for answer in answers)
    assert shelf.requests == (1 + 8 if mode == "plain" else 2)


@pytest.mark.parametrize("mode", MODES)
async def test_a_consumer_that_reads_on_finds_the_bytes_there(mode: str) -> None:
    shelf = await shelf_of(2, MODES[mode])
    reader = shelf.reader(RemoteSettings(read_ahead_bytes=MIB))
    first = await read(reader, shelf.segments, 0, max_bytes=10 * SIZE)
    second = await read(reader, shelf.segments, first.next_offset, max_bytes=10 * SIZE)
    await landed()
    before = shelf.requests
    offset = second.next_offset
    while offset < shelf.end:
        segments = [each for each in shelf.segments if each.last_offset >= offset]
        answer = await read(reader, segments, offset, max_bytes=10 * SIZE)
        assert answer.error is None
        offset = answer.next_offset
    assert shelf.requests == before
    await reader.close()


async def test_a_scan_costs_no_request_for_an_index_and_reads_everything_about_once() -> None:
    shelf = await shelf_of(3, MODES["plain"])
    metrics = Metrics()
    reader = shelf.reader(metrics=metrics)
    offset, total = 0, sum(segment.size_bytes for segment in shelf.segments)
    while offset < shelf.end:
        segments = [each for each in shelf.segments if each.last_offset >= offset]
        offset = (await read(reader, segments, offset, max_bytes=50_000)).next_offset
    read_bytes = {
        kind: metrics.registry.get_sample_value(
            "stratalog_segment_read_bytes_total", {"kind": kind}
        )
        for kind in ("index", "log", "ahead")
    }
    assert read_bytes == {"index": None, "log": 50_000, "ahead": total}
    assert shelf.bytes_read == 50_000 + total
    await reader.close()


async def test_reading_ahead_is_bounded() -> None:
    shelf = await shelf_of(4, MODES["aes"])
    metrics = Metrics()
    reader = shelf.reader(RemoteSettings(read_ahead_bytes=100_000), metrics)
    first = await read(reader, shelf.segments, 0, max_bytes=10 * SIZE)
    await read(reader, shelf.segments, first.next_offset, max_bytes=10 * SIZE)
    await landed()
    # Requests are filled up to 4 MiB, and end with their segment.
    assert shelf.bytes_read < 1.1 * shelf.segments[0].size_bytes
    await reader.close()


async def test_reading_ahead_can_be_switched_off() -> None:
    shelf = await shelf_of(1, MODES["plain"])
    reader = shelf.reader(RemoteSettings(read_ahead_bytes=0))
    offset = 0
    for turn in range(5):
        answer = await read(reader, shelf.segments, offset, max_bytes=10 * SIZE)
        await landed()
        offset = answer.next_offset
        assert (offset, shelf.requests) == (10 * (turn + 1), turn + 1)


async def test_a_reader_without_any_cache_still_reads() -> None:
    shelf = await shelf_of(1, MODES["both"])
    reader = shelf.reader(RemoteSettings(chunk_cache_bytes=0, index_cache_bytes=0))
    offset = 0
    while offset < shelf.end:
        answer = await read(reader, shelf.segments, offset, max_bytes=40 * SIZE)
        assert offsets(answer)[0] == offset
        offset = answer.next_offset


async def test_two_consumers_side_by_side_share_what_is_read_ahead() -> None:
    shelf = await shelf_of(2, MODES["plain"])
    reader = shelf.reader()
    offset, turns = 0, 0
    while offset < shelf.end:
        segments = [each for each in shelf.segments if each.last_offset >= offset]
        want = PiecesWanted(offset=Offset(offset), max_bytes=50_000, pieces=segments)
        one, other = await reader.read([want, want])
        assert offsets(one) == offsets(other)
        offset, turns = one.next_offset, turns + 1
    total = sum(segment.size_bytes for segment in shelf.segments)
    assert shelf.bytes_read == 2 * 50_000 + total
    await reader.close()


async def test_the_indexes_that_kafka_would_write_are_handed_out() -> None:
    shelf = await shelf_of(1, MODES["both"])
    segment = shelf.segments[0]
    reader = shelf.reader()
    assert len(await reader.index(segment, IndexKind.OFFSET)) % 8 == 0
    assert (await reader.index(segment, IndexKind.LEADER_EPOCH)).startswith(b"0\n1\n")
    assert await reader.index(segment, IndexKind.PRODUCER_SNAPSHOT)
    assert shelf.requests == 3
    await reader.index(segment, IndexKind.OFFSET)
    assert shelf.requests == 3


class SlowStore(WrappedStore):
    """Requests wait until they are let go."""

    def __init__(self, shelf: Shelf) -> None:
        super().__init__(shelf.store)
        self.go = asyncio.Event()
        self.asked = asyncio.Event()
        self.requests = 0

    async def get_ranges(
        self,
        key: str,
        ranges: Sequence[Range],
        *,
        into: Sequence[memoryview] | None = None,
        mapped: bool = False,
    ) -> list[Buffer]:
        self.requests += 1
        self.asked.set()
        await self.go.wait()
        return await super().get_ranges(key, ranges, into=into, mapped=mapped)


def slow_reader(shelf: Shelf) -> tuple[SlowStore, SegmentReader]:
    store = SlowStore(shelf)
    shelf.store = store  # type: ignore[assignment]
    return store, shelf.reader()


async def test_a_reader_that_goes_away_leaves_the_chunk_to_the_others() -> None:
    shelf = await shelf_of(1, MODES["aes"])
    store, reader = slow_reader(shelf)
    first = asyncio.create_task(read(reader, shelf.segments, 0))
    second = asyncio.create_task(read(reader, shelf.segments, 0))
    await store.asked.wait()
    first.cancel()
    await asyncio.wait([first])
    store.go.set()
    assert offsets(await second)[0] == 0
    assert (first.cancelled(), store.requests) == (True, 1)


async def test_closing_ends_what_is_under_way_and_refuses_what_comes_later() -> None:
    shelf = await shelf_of(1, MODES["aes"])
    store, reader = slow_reader(shelf)
    reading = asyncio.create_task(read(reader, shelf.segments, 0))
    await store.asked.wait()
    await reader.close()
    assert isinstance((await reading).error, ReaderClosedError)
    assert isinstance((await read(reader, shelf.segments, 0)).error, ReaderClosedError)
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize(("cache_bytes", "requests"), [(101_000, 16), (201_000, 4), (390_000, 4)])
@pytest.mark.parametrize("encrypt", [False, True])
async def test_a_chunk_that_fills_much_of_the_cache_is_fetched_once_for_all_steps(
    cache_bytes: int, requests: int, encrypt: bool
) -> None:
    """Where there is room for two. With room for one, steps that need two fetch both again."""
    mode = Encoding(chunk_bytes=100_000, compress=not encrypt, encrypt=encrypt)
    shelf = await shelf_of(1, mode)
    reader = shelf.reader(RemoteSettings(chunk_cache_bytes=cache_bytes))
    offset, steps = 0, 0
    while offset < shelf.end:
        answer = await read(reader, shelf.segments, offset, max_bytes=10 * SIZE)
        assert answer.error is None
        offset, steps = answer.next_offset, steps + 1
    assert steps == 30
    assert shelf.requests <= requests
    await reader.close()


async def test_closing_ends_what_is_read_ahead() -> None:
    shelf = await shelf_of(1, MODES["aes"], batches=600)
    reader = shelf.reader(RemoteSettings(chunk_cache_bytes=MIB))
    await read(reader, shelf.segments, 0, max_bytes=10 * SIZE)
    answer = await read(reader, shelf.segments, 10, max_bytes=10 * SIZE)
    assert offsets(answer) == list(range(10, 20))
    await reader.close()
    assert len(asyncio.all_tasks()) == 1


async def test_reads_are_counted() -> None:
    shelf = await shelf_of(1, MODES["aes"])
    metrics = Metrics()
    reader = shelf.reader(metrics=metrics)
    await read(reader, shelf.segments, 5, max_bytes=1)
    await read(reader, shelf.segments, 6, max_bytes=1)

    def value(name: str, kind: str) -> float | None:
        return metrics.registry.get_sample_value(f"stratalog_segment_{name}_total", {"kind": kind})

    assert (value("read_requests", "index"), value("read_requests", "log")) == (1, 1)
    assert (value("cache_misses", "index"), value("cache_misses", "chunk")) == (1, 1)
    assert value("cache_hits", "index") == 0
    assert value("cache_hits", "chunk") == 1
    assert value("read_bytes", "log") == 16_028
