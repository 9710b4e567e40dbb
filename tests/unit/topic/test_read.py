import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.block.rig import PATIENCE_S, soon
from tests.unit.topic.rig import TopicRig, batch, in_another_object, records

from stratalog.control.log.errors import OffsetOutOfRangeError
from stratalog.control.log.model import FoundBatches
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.ids import Offset
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.testing import ManualClock
from stratalog.topic.errors import RowMissingError

FOR_EVER_MS = 600_000

# Routing.


@pytest.mark.parametrize(("offset", "inside"), [(-1, False), (0, True), (3, True), (4, False)])
async def test_offsets_outside_the_partition_are_out_of_range(
    rig: TopicRig, offset: int, inside: bool
) -> None:
    await rig.append(0, batch(b"a", b"b", b"c"))
    answer = await rig.read_one(0, offset)
    assert isinstance(answer.error, OffsetOutOfRangeError) is not inside
    assert (answer.log_start, answer.high_watermark, answer.last_stable) == (0, 3, 3)


async def test_the_high_watermark_is_answered_with_nothing(rig: TopicRig) -> None:
    await rig.append(0, batch(b"a"))
    answer = await rig.read_one(0, 1)
    assert (answer.error, [*answer.parts]) == (None, [])


async def test_what_was_deleted_is_out_of_range_even_inside_a_batch(rig: TopicRig) -> None:
    await rig.append(0, batch(b"a", b"b", b"c"))
    await rig.control.inner.log.delete_records({rig.part(): Offset(2)})
    assert isinstance((await rig.read_one(0, 1)).error, OffsetOutOfRangeError)
    kept = await rig.read_one(0, 2)
    assert kept.log_start == 2
    assert records(kept)[-1] == (2, b"c"), "whole batches are served: clients skip what is before"


async def test_an_unknown_partition_is_told_and_the_others_are_served(rig: TopicRig) -> None:
    await rig.append(0, batch(b"a"))
    unknown, known = await rig.read(rig.span(9, 0), rig.span(0, 0))
    assert isinstance(unknown.error, UnknownTopicError)
    assert records(known) == [(0, b"a")]


async def test_a_row_that_is_missing_is_damage_and_never_skipped(rig: TopicRig) -> None:
    for value in (b"a", b"b", b"c"):
        await rig.append(0, batch(value))
    rig.damage("DELETE FROM batches WHERE base_offset = 1")
    answer = await rig.read_one(0, 1)
    assert isinstance(answer.error, RowMissingError)
    assert answer.parts == ()
    assert records(await rig.read_one(0, 2)) == [(2, b"c")]


async def test_a_read_from_before_a_missing_row_ends_there(rig: TopicRig) -> None:
    for value in (b"a", b"b", b"c"):
        await rig.append(0, batch(value))
    rig.damage("DELETE FROM batches WHERE base_offset = 1")
    answer = await rig.read_one(0, 0)
    assert records(answer) == [(0, b"a")]


async def test_a_missing_last_row_is_damage_too(rig: TopicRig) -> None:
    await rig.append(0, batch(b"a"))
    rig.damage("DELETE FROM batches")
    assert isinstance((await rig.read_one(0, 0)).error, RowMissingError)


# Objects that are gone.


def said_to_be_in(
    key: str,
) -> Callable[[list[FoundBatches]], Awaitable[list[FoundBatches]]]:
    async def change(found: list[FoundBatches]) -> list[FoundBatches]:
        return [in_another_object(one, key) for one in found]

    return change


async def test_an_object_that_is_gone_is_resolved_once_more(rig: TopicRig) -> None:
    await rig.append(0, batch(b"a"))
    rig.control.after_look.append(said_to_be_in("blocks/gone"))
    assert records(await rig.read_one(0, 0)) == [(0, b"a")]
    assert rig.control.looks == 2


async def test_an_object_that_stays_gone_fails_the_read_of_its_partition(rig: TopicRig) -> None:
    await rig.append(0, batch(b"a"))
    await rig.append(1, batch(b"b"))
    [row] = await rig.control.inner.log.all_coordinates(rig.part(0), limit=1)
    await rig.store.delete([row.object_key])
    gone, there = await rig.read(rig.span(0, 0), rig.span(1, 0))
    assert isinstance(gone.error, ObjectNotFoundError)
    assert records(there) == [(0, b"b")]
    assert rig.control.looks == 2


# Budgets.


async def test_every_partition_gets_its_share_of_the_bytes(rig: TopicRig) -> None:
    size = len(batch(b"x" * 100))
    for partition in range(3):
        for _ in range(10):
            await rig.append(partition, batch(b"x" * 100))
    spans = [rig.span(partition, 0) for partition in range(3)]
    answers = await rig.read(*spans, max_bytes=6 * size)
    assert [len(records(answer)) for answer in answers] == [2, 2, 2]


async def test_a_partitions_own_limit_holds_beside_the_requests(rig: TopicRig) -> None:
    size = len(batch(b"x"))
    for _ in range(5):
        await rig.append(0, batch(b"x"))
        await rig.append(1, batch(b"x"))
    small, large = await rig.read(rig.span(0, 0, 2 * size), rig.span(1, 0), max_bytes=100 * size)
    assert len(records(small)) == 2
    assert len(records(large)) == 5


async def test_a_reader_with_too_small_a_budget_still_moves_on(rig: TopicRig) -> None:
    await rig.append(0, batch(b"x" * 1000))
    await rig.append(1, batch(b"y" * 1000))
    first, second = await rig.read(rig.span(0, 0, 1), rig.span(1, 0, 1), max_bytes=1)
    assert records(first) == [(0, b"x" * 1000)]
    assert (second.parts, second.error) == ([], None)


# Waiting.


async def test_a_reader_at_the_end_wakes_when_the_partition_grows(rig: TopicRig) -> None:
    looked = asyncio.Event()

    async def tell(found: list[FoundBatches]) -> list[FoundBatches]:
        looked.set()
        return found

    rig.control.after_look.append(tell)
    reading = asyncio.ensure_future(rig.read(rig.span(0, 0), max_wait_ms=FOR_EVER_MS))
    await soon(looked.wait())
    await rig.append(0, batch(b"a"))
    [answer] = await reading
    assert records(answer) == [(0, b"a")]


async def test_nothing_slips_in_between_a_look_and_the_sleep_after_it(rig: TopicRig) -> None:
    async def written_meanwhile(found: list[FoundBatches]) -> list[FoundBatches]:
        await rig.append(0, batch(b"a"))
        return found

    rig.control.after_look.append(written_meanwhile)
    [answer] = await rig.read(rig.span(0, 0), max_wait_ms=FOR_EVER_MS)
    assert records(answer) == [(0, b"a")]
    assert rig.control.looks == 2


async def test_a_reader_that_comes_back_to_the_end_waits_without_a_look(rig: TopicRig) -> None:
    await rig.append(0, batch(b"a"))
    await rig.append(1, batch(b"b"))
    at_ends = (rig.span(0, 1), rig.span(1, 1))
    for committed in (False, False, True):
        answers = await rig.read(*at_ends, max_wait_ms=1, committed=committed)
        assert [(one.error, one.high_watermark) for one in answers] == [(None, 1)] * 2
    assert rig.control.looks == 1
    reading = asyncio.ensure_future(rig.read(*at_ends, max_wait_ms=FOR_EVER_MS))
    await rig.append(0, batch(b"c"))
    grown, other = await reading
    assert (records(grown), records(other)) == ([(1, b"c")], [])
    assert rig.control.looks == 2


async def test_only_partitions_away_from_their_known_ends_are_looked_at(rig: TopicRig) -> None:
    await rig.append(0, batch(b"a"))
    await rig.append(1, batch(b"b"))
    await rig.read(rig.span(0, 1), rig.span(1, 1), max_wait_ms=1)
    asked: list[int] = []

    async def note(found: list[FoundBatches]) -> list[FoundBatches]:
        asked.extend(one.state.partition for one in found if one.state)
        return found

    rig.control.after_look.append(note)
    resting, behind = await rig.read(
        rig.span(0, 1), rig.span(1, 0), max_wait_ms=FOR_EVER_MS, min_bytes=1
    )
    assert (records(resting), records(behind)) == ([], [(0, b"b")])
    assert asked == [1]


async def test_a_reader_that_does_not_wait_always_looks(rig: TopicRig) -> None:
    """Its producer may know of a write before this broker does."""
    for _ in range(3):
        await rig.read(rig.span(0, 0), max_wait_ms=0)
        await rig.read(rig.span(0, 0), max_wait_ms=FOR_EVER_MS, min_bytes=0)
    assert rig.control.looks == 6


async def test_a_reader_waits_for_as_many_bytes_as_it_wants(rig: TopicRig) -> None:
    size = len(batch(b"a"))
    looks: asyncio.Queue[int] = asyncio.Queue()

    async def tell(found: list[FoundBatches]) -> list[FoundBatches]:
        looks.put_nowait(sum(len(one.rows) for one in found))
        return found

    rig.control.after_look += [tell] * 3
    reading = asyncio.ensure_future(
        rig.read(rig.span(0, 0), rig.span(1, 0), min_bytes=2 * size, max_wait_ms=FOR_EVER_MS)
    )
    assert await soon(looks.get()) == 0
    await rig.append(0, batch(b"a"))
    assert await soon(looks.get()) == 1
    assert not reading.done()
    await rig.append(1, batch(b"b"))
    answers = await reading
    assert [records(answer) for answer in answers] == [[(0, b"a")], [(0, b"b")]]


async def test_a_reader_is_answered_with_what_there_is_when_its_time_is_over(
    rig: TopicRig,
) -> None:
    await rig.append(0, batch(b"a"))
    [answer] = await rig.read(rig.span(0, 0), min_bytes=1 << 20, max_wait_ms=10)
    assert records(answer) == [(0, b"a")]


async def test_a_reader_whose_timer_has_ended_does_not_wait_for_the_clock_of_its_deadline(
    rig: TopicRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.append(0, batch(b"a"))
    monkeypatch.setattr(rig.reader, "_clock", ManualClock())
    async with asyncio.timeout(PATIENCE_S):
        [answer] = await rig.read(rig.span(0, 0), min_bytes=1 << 20, max_wait_ms=10)
    assert records(answer) == [(0, b"a")]


async def test_an_error_is_answered_at_once(rig: TopicRig) -> None:
    waiting, wrong = await rig.read(rig.span(0, 0), rig.span(1, 77), max_wait_ms=FOR_EVER_MS)
    assert waiting.error is None
    assert isinstance(wrong.error, OffsetOutOfRangeError)


async def test_readers_are_let_go_when_the_broker_stops(rig: TopicRig) -> None:
    looked = asyncio.Event()

    async def tell(found: list[FoundBatches]) -> list[FoundBatches]:
        looked.set()
        return found

    rig.control.after_look.append(tell)
    reading = asyncio.ensure_future(rig.read(rig.span(0, 0), max_wait_ms=FOR_EVER_MS))
    await soon(looked.wait())
    rig.reader.stop()
    [answer] = await reading
    assert (answer.error, answer.high_watermark) == (None, 0)
