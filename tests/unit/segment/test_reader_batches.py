"""Which batches a read of segments answers with."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.segment.reading import MODES, Placed, Shelf, offsets, placed, read
from tests.unit.segment.runs import batch

from stratalog.batch.records import decode_records
from stratalog.pieces import PiecesRead, PiecesWanted, Start
from stratalog.segment.chunk_encoding import Encoding
from stratalog.settings import RemoteSettings

SIZE = len(batch(2))


def expected(batches: list[Placed], offset: int) -> list[Placed]:
    return [each for each in batches if each.last >= offset]


def whole(answer: PiecesRead) -> bytes:
    assert answer.error is None
    assert answer.size_bytes == sum(map(len, answer.parts))
    return b"".join(answer.parts)


@pytest.mark.parametrize("mode", MODES)
async def test_an_answer_begins_with_the_batch_that_holds_the_offset(mode: str) -> None:
    shelf = Shelf()
    await shelf.add([batch(2) for _ in range(500)], MODES[mode])
    (log,) = shelf.logs
    for offset in (0, 1, 2, 333, 500, 501, 998, 999):
        answer = await read(shelf.reader(), shelf.segments, offset)
        assert whole(answer) == b"".join(each.data for each in expected(placed(log), offset))
        assert (answer.next_offset, answer.ended) == (1000, True)


@pytest.mark.parametrize("mode", MODES)
async def test_batches_that_are_larger_than_chunks_are_put_together(mode: str) -> None:
    shelf = Shelf()
    encoding = replace(MODES[mode], chunk_bytes=1000)
    await shelf.add([batch(1, value_bytes=7000) for _ in range(20)], encoding)
    answer = await read(shelf.reader(), shelf.segments, 7, max_bytes=30_000)
    assert offsets(answer) == [7, 8, 9, 10]
    assert all(record.value == bytes(7000) for record in decode_records(b"".join(answer.parts)))


async def test_an_answer_ends_at_its_bytes_but_holds_one_batch_at_least() -> None:
    shelf = Shelf()
    await shelf.add([batch(2), batch(2), batch(2), batch(2)])
    for max_bytes, count in ((0, 1), (1, 1), (2 * SIZE - 1, 1), (2 * SIZE, 2), (3 * SIZE + 1, 3)):
        answer = await read(shelf.reader(), shelf.segments, 2, max_bytes)
        assert offsets(answer) == list(range(2, 2 + 2 * count))
        assert answer.next_offset == 2 + 2 * count
        assert answer.ended == (count == 3)


async def test_a_first_batch_that_is_larger_than_the_first_look_is_answered() -> None:
    shelf = Shelf()
    await shelf.add([batch(1, value_bytes=300_000), batch(1, value_bytes=300_000), batch()])
    answer = await read(shelf.reader(), shelf.segments, 0, max_bytes=10)
    assert (offsets(answer), answer.ended) == ([0], False)


@pytest.mark.parametrize("mode", MODES)
async def test_an_answer_crosses_from_one_segment_to_the_next(mode: str) -> None:
    shelf = Shelf()
    for _ in range(4):
        await shelf.add([batch(2) for _ in range(10)], MODES[mode])
    reader = shelf.reader()
    answer = await read(reader, shelf.segments, 15)
    assert offsets(answer) == list(range(14, 80))
    assert (answer.next_offset, answer.ended, answer.error) == (80, True, None)
    answer = await read(reader, shelf.segments[:2], 15)
    assert (offsets(answer)[-1], answer.next_offset, answer.ended) == (39, 40, True)
    answer = await read(reader, shelf.segments[1:], 20, max_bytes=10 * SIZE + 61)
    assert (offsets(answer), answer.next_offset) == (list(range(20, 40)), 40)
    assert not answer.ended
    answer = await read(reader, shelf.segments[1:], 20, max_bytes=15 * SIZE)
    assert (offsets(answer), answer.next_offset) == (list(range(20, 50)), 50)


async def test_a_large_batch_of_the_next_segment_waits_for_the_next_read() -> None:
    shelf = Shelf()
    await shelf.add([batch(2)])
    await shelf.add([batch(1, value_bytes=5000)])
    reader = shelf.reader()
    answer = await read(reader, shelf.segments, 0, max_bytes=SIZE + 200)
    assert (offsets(answer), answer.next_offset, answer.ended) == ([0, 1], 2, False)
    answer = await read(reader, shelf.segments[1:], 2, max_bytes=SIZE + 200)
    assert (offsets(answer), answer.ended) == ([2], True)


async def test_many_partitions_are_read_together() -> None:
    shelves = [Shelf() for _ in range(3)]
    for shelf in shelves:
        await shelf.add([batch(2) for _ in range(10)])
    answers = [await read(shelf.reader(), shelf.segments, 4) for shelf in shelves]
    assert [offsets(answer)[0] for answer in answers] == [4, 4, 4]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ahead_bytes", [0, 50_000])
async def test_reading_on_gives_every_offset_once(mode: str, ahead_bytes: int) -> None:
    shelf = Shelf()
    for _ in range(3):
        await shelf.add([batch(3) for _ in range(200)], MODES[mode])
    reader = shelf.reader(RemoteSettings(read_ahead_bytes=ahead_bytes, chunk_cache_bytes=1_000_000))
    seen: list[int] = []
    offset = 0
    while offset < shelf.end:
        segments = [each for each in shelf.segments if each.last_offset >= offset]
        answer = await read(reader, segments, offset, max_bytes=7000)
        assert answer.error is None
        seen += offsets(answer)
        offset = answer.next_offset
    assert seen == list(range(1800))
    await reader.close()


async def test_what_remains_is_counted_from_about_the_offset() -> None:
    shelf = Shelf()
    for _ in range(2):
        await shelf.add([batch(2) for _ in range(100)])
    reader = shelf.reader()
    total = sum(segment.size_bytes for segment in shelf.segments)
    first = shelf.segments[0]
    wanted = [
        PiecesWanted(offset=offset, max_bytes=1, pieces=shelf.segments)
        for offset in (first.base_offset, first.last_offset)
    ]
    whole_log, rest = await reader.locate(wanted)
    assert isinstance(whole_log, Start)
    assert isinstance(rest, Start)
    assert whole_log.size_bytes == total
    remaining = rest.size_bytes
    assert total - shelf.segments[0].size_bytes + SIZE <= remaining
    assert remaining <= total - shelf.segments[0].size_bytes + 2 * 4096 + 2 * SIZE
    answer = await read(reader, shelf.segments, shelf.segments[0].last_offset, remaining)
    assert answer.ended


_batches = st.lists(
    st.builds(
        lambda count, size: batch(count, value_bytes=size), st.integers(1, 4), st.integers(0, 900)
    ),
    min_size=1,
    max_size=15,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    logs=st.lists(_batches, min_size=1, max_size=3),
    encoding=st.builds(
        Encoding, chunk_bytes=st.integers(100, 5000), compress=st.booleans(), encrypt=st.booleans()
    ),
    interval_bytes=st.integers(0, 4096),
    cached=st.booleans(),
    reads=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 20_000)), min_size=1, max_size=5),
)
async def test_any_batches_come_back_at_any_offset(
    logs: list[list[bytes]],
    encoding: Encoding,
    interval_bytes: int,
    cached: bool,
    reads: list[tuple[float, int]],
) -> None:
    shelf = Shelf()
    for batches in logs:
        await shelf.add(batches, encoding, interval_bytes=interval_bytes)
    stored = placed(b"".join(shelf.logs))
    cache_bytes = 100_000 if cached else 0
    reader = shelf.reader(
        RemoteSettings(index_cache_bytes=cache_bytes, chunk_cache_bytes=cache_bytes)
    )
    for where, max_bytes in reads:
        offset = int(where * (shelf.end - 1))
        segments = [each for each in shelf.segments if each.last_offset >= offset]
        answer = await read(reader, segments, offset, max_bytes)
        rest = expected(stored, offset)
        answered = placed(whole(answer))
        assert answered == rest[: len(answered)]
        assert answered
        assert len(answered) == 1 or answer.size_bytes <= max_bytes
        assert answer.next_offset == answered[-1].last + 1
        assert answer.ended == (answer.next_offset == shelf.end)
        again = await read(reader, segments, offset, max_bytes)
        assert whole(again) == whole(answer)
    await reader.close()
