"""Segments of Kafka may end in a gap: readers that stand in it are led on, or wait."""

import asyncio
from dataclasses import replace

import pytest
from tests.unit.topic.hybrid_topic import FIRST, FOR_EVER_MS, fill, read_from
from tests.unit.topic.rig import TopicRig, batch, records

from stratalog.control.log.model import FoundBatches
from stratalog.control.segments.model import Segment
from stratalog.ids import Offset
from stratalog.pieces import PiecesRead, PiecesWanted


def end_in_a_gap(rig: TopicRig, monkeypatch: pytest.MonkeyPatch, end: int) -> None:
    """Let segments hold nothing from offset 1 to this one, as compacted ones of Kafka may."""
    read = rig.segments.read

    async def without_the_last(wanted: list[PiecesWanted[Segment]]) -> list[PiecesRead]:
        answers = await read(wanted)
        return [
            PiecesRead(next_offset=Offset(end), ended=True) if 1 <= want.offset < end else answer
            for want, answer in zip(wanted, answers, strict=True)
        ]

    monkeypatch.setattr(rig.segments, "read", without_the_last)


@pytest.mark.parametrize("committed", [False, True])
async def test_a_gap_at_the_end_of_segments_leads_on_however_few_bytes_are_asked_for(
    rig: TopicRig, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    await fill(rig, 0, b"a", b"b", b"c", b"d")
    await rig.convert(0, up_to=2, aborted=[FIRST])
    end_in_a_gap(rig, monkeypatch, 2)
    [answer] = await rig.read(rig.span(0, 1, max_bytes=1), committed=committed)
    assert records(answer) == [(2, b"c")]
    assert answer.aborted == (), "none has records in the answer"


async def test_a_gap_at_the_end_of_segments_leads_into_the_next_one_that_overlaps(
    rig: TopicRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that overlaps is not found with the one before it."""
    await fill(rig, 0, b"a", b"b", b"c", b"d")
    await rig.convert(0, up_to=2)
    await rig.convert(0, up_to=4)
    end_in_a_gap(rig, monkeypatch, 2)

    async def the_first_only(found: list[FoundBatches]) -> list[FoundBatches]:
        return [replace(one, pieces=[*one.segments[:1], *one.rows]) for one in found]

    rig.control.after_look.append(the_first_only)
    assert records(await read_from(rig, 1)) == [(2, b"c"), (3, b"d")]


async def test_a_gap_at_the_end_of_the_partition_is_answered_with_nothing(
    rig: TopicRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(rig, 0, b"a", b"b")
    await rig.convert(0)
    end_in_a_gap(rig, monkeypatch, 2)
    answer = await read_from(rig, 1)
    assert (answer.error, list(answer.parts), answer.high_watermark) == (None, [], 2)


async def test_a_reader_in_a_gap_at_the_end_of_the_partition_waits_for_more(
    rig: TopicRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(rig, 0, b"a", b"b")
    await rig.convert(0)
    end_in_a_gap(rig, monkeypatch, 2)
    reading = asyncio.ensure_future(rig.read(rig.span(0, 1), max_wait_ms=FOR_EVER_MS))
    await asyncio.sleep(0.05)
    assert not reading.done(), "clients that ask again at once would spin"
    assert rig.control.looks == 1
    await rig.append(0, batch(b"c"))
    [answer] = await reading
    assert records(answer) == [(2, b"c")]


async def test_what_lies_behind_a_gap_gets_no_more_than_what_is_left(
    rig: TopicRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition in range(2):
        await fill(rig, partition, *(b"v" for _ in range(12)))
    await rig.convert(0, up_to=2)
    await rig.convert(0)
    end_in_a_gap(rig, monkeypatch, 2)

    async def the_first_only(found: list[FoundBatches]) -> list[FoundBatches]:
        return [replace(one, pieces=[*one.segments[:1], *one.rows]) for one in found]

    rig.control.after_look.append(the_first_only)
    size = len(batch(b"v"))
    answers = await rig.read(rig.span(0, 1), rig.span(1, 0), max_bytes=10 * size)
    assert [len(records(answer)) for answer in answers] == [1, 9]
