"""Sequential reads: their recognition, and the spans that are planned for them."""

from uuid import UUID

import pytest
from tests.unit.segment.reading import MODES, TOPIC, Shelf, read
from tests.unit.segment.runs import batch

from stratalog.batch.header import HEADER_BYTES
from stratalog.control.segments.model import Segment
from stratalog.ids import Offset, PartitionIndex, SegmentId, TopicPartition
from stratalog.segment.read_plan import Cursor, LogSpan, plan_spans, spans_after
from stratalog.segment.sequential_reads import MOST_ENDS, LogPosition, SequentialReads
from stratalog.settings import RemoteSettings

SEGMENT = SegmentId(UUID(int=5))


def partition(number: int) -> TopicPartition:
    return TopicPartition(TOPIC, PartitionIndex(number))


def test_a_read_is_known_where_an_earlier_one_ended_and_nowhere_else() -> None:
    streams = SequentialReads(1000)
    place = LogPosition(SEGMENT, 500)
    streams.ended(partition(1), Offset(10), place)
    assert streams.position(partition(1), Offset(10)) == place
    assert streams.position(partition(1), Offset(10)) == place
    assert streams.position(partition(1), Offset(11)) is None
    assert streams.position(partition(2), Offset(10)) is None


def test_only_so_many_ends_are_remembered() -> None:
    streams = SequentialReads(1000)
    for offset in range(MOST_ENDS + 1):
        streams.ended(partition(1), Offset(offset), LogPosition(SEGMENT, offset))
    assert streams.position(partition(1), Offset(0)) is None
    assert streams.position(partition(1), Offset(1)) is not None


def test_scans_share_the_room_for_reading_ahead_until_they_end() -> None:
    streams = SequentialReads(1000)
    assert streams.reads_on(partition(1)) == 1000
    assert streams.reads_on(partition(2)) == 500
    assert streams.reads_on(partition(1)) == 500
    shares = [streams.reads_on(partition(1)) for _ in range(40)]
    assert (shares[0], shares[-1]) == (500, 1000)


async def segments_of(*sizes: int) -> list[Segment]:
    shelf = Shelf()
    for count in sizes:
        await shelf.add([batch(1, value_bytes=1000) for _ in range(count)])
    return shelf.segments


async def test_later_segments_are_asked_for_what_is_left_to_answer_with() -> None:
    segments = await segments_of(10, 10, 10)
    size = segments[0].size_bytes
    cursor = Cursor(number=0, position=size // 2, expected=None, needed_bytes=100)
    half = LogSpan(0, size // 2, size)
    assert plan_spans(segments, cursor, 10) == [LogSpan(0, size // 2, size // 2 + 100)]
    assert plan_spans(segments, cursor, size // 2) == [half]
    assert plan_spans(segments, cursor, size // 2 + HEADER_BYTES - 1) == [half]
    assert plan_spans(segments, cursor, size // 2 + HEADER_BYTES) == [
        half,
        LogSpan(1, 0, HEADER_BYTES, size - size // 2),
    ]
    assert plan_spans(segments, cursor, 10 * size)[1:] == [
        LogSpan(1, 0, size, size - size // 2),
        LogSpan(2, 0, size, 2 * size - size // 2),
    ]


async def test_what_is_read_ahead_follows_what_is_read() -> None:
    segments = await segments_of(10, 10)
    size = segments[0].size_bytes
    assert spans_after(segments, LogSpan(0, 0, 100), 50) == [LogSpan(0, 100, 150)]
    assert spans_after(segments, LogSpan(0, 0, size), 50) == [LogSpan(1, 0, 50)]
    assert spans_after(segments, LogSpan(0, 0, 100), 10 * size) == [
        LogSpan(0, 100, size),
        LogSpan(1, 0, size),
    ]
    assert spans_after(segments, LogSpan(1, 0, size), 50) == []


@pytest.mark.parametrize("mode", ["zstd", "aes"])
async def test_a_chunk_that_is_read_again_and_again_survives_a_scan(mode: str) -> None:
    shelf = Shelf()
    hot = await shelf.add([batch(1, value_bytes=1000) for _ in range(14)], MODES[mode])
    for _ in range(5):
        await shelf.add([batch(1, value_bytes=1000) for _ in range(300)], MODES[mode])
    reader = shelf.reader(RemoteSettings(chunk_cache_bytes=400_000))
    for _ in range(3):
        await read(reader, [hot], 5, max_bytes=1)
    offset = hot.end_offset
    while offset < shelf.end:
        segments = [each for each in shelf.segments if each.last_offset >= offset]
        answer = await read(reader, segments, offset, max_bytes=5000)
        assert answer.error is None
        offset = answer.next_offset
    before = shelf.requests
    assert (await read(reader, [hot], 5, max_bytes=1)).error is None
    assert shelf.requests == before
    await reader.close()
