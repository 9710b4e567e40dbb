"""Reads over both tiers: one sequence of offsets, wherever the boundary is."""

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest
from tests.unit.block.rig import soon
from tests.unit.topic.hybrid_topic import FIRST, FOR_EVER_MS, fill, read_from
from tests.unit.topic.rig import TopicRig, batch, records

from stratalog.control.log.errors import OffsetOutOfRangeError
from stratalog.control.log.model import FoundBatches
from stratalog.control.segments.model import Segment
from stratalog.errors import StratalogError
from stratalog.ids import Offset, ProducerId, SegmentId
from stratalog.objects.errors import ObjectNotFoundError, StoreUnavailableError
from stratalog.objects.faulty import Fault
from stratalog.segment.errors import IndexDamagedError, IndexObjectDamagedError
from stratalog.segment.model import AbortedTransaction
from stratalog.topic.errors import RemoteReadsOffError, RowMissingError

# Across the boundary.


@pytest.mark.parametrize("converted", [1, 2, 3, 4])
@pytest.mark.parametrize("offset", [0, 1, 2, 3])
async def test_one_answer_reaches_from_segments_into_blocks(
    rig: TopicRig, converted: int, offset: int
) -> None:
    await fill(rig, 0, b"a", b"b", b"c", b"d")
    for end in range(1, converted + 1):
        await rig.convert(0, up_to=end)
    expected = list(enumerate([b"a", b"b", b"c", b"d"]))[offset:]
    assert records(await read_from(rig, offset)) == expected


async def test_an_offset_inside_a_batch_of_a_segment_is_answered_with_the_batch(
    rig: TopicRig,
) -> None:
    await rig.append(0, batch(b"a", b"b", b"c"))
    await rig.convert(0)
    assert records(await read_from(rig, 1)) == [(0, b"a"), (1, b"b"), (2, b"c")]


async def test_several_partitions_are_answered_each_from_its_own_tier(rig: TopicRig) -> None:
    for partition in range(3):
        await fill(rig, partition, b"a", b"b")
    await rig.convert(0)
    await rig.convert(1, up_to=1)
    answers = await rig.read(*(rig.span(partition, 0) for partition in range(3)))
    assert [records(answer) for answer in answers] == [[(0, b"a"), (1, b"b")]] * 3


async def test_rows_are_not_served_after_segments_that_were_not_read_to_their_end(
    rig: TopicRig,
) -> None:
    size = len(batch(b"x" * 100))
    await fill(rig, 0, *[b"x" * 100] * 6)
    await rig.convert(0, up_to=3)
    for room in range(1, 7):
        answer = await read_from(rig, 0, max_bytes=room * size)
        assert [offset for offset, _ in records(answer)] == list(range(room))


async def test_rows_that_do_not_fit_behind_the_segments_wait_for_the_next_fetch(
    rig: TopicRig,
) -> None:
    await fill(rig, 0, b"a", b"x" * 1000)
    await rig.convert(0, up_to=1)
    size = len(batch(b"a"))
    assert records(await read_from(rig, 0, max_bytes=size + 10)) == [(0, b"a")]
    assert records(await read_from(rig, 1, max_bytes=10)) == [(1, b"x" * 1000)]


async def test_the_blocks_are_left_alone_while_the_segments_have_enough(rig: TopicRig) -> None:
    size = len(batch(b"x" * 100))
    await fill(rig, 0, *[b"x" * 100] * 6)
    await rig.convert(0, up_to=3)
    rig.faults.remaining.append(("get_ranges", Fault.UNAVAILABLE))
    await read_from(rig, 0, max_bytes=3 * size)
    assert len(rig.faults.remaining) == 1


async def test_blocks_that_fail_behind_segments_do_not_keep_those_back(rig: TopicRig) -> None:
    await fill(rig, 0, b"a", b"b")
    await rig.convert(0, up_to=1)
    [row] = await rig.control.inner.log.all_coordinates(rig.part(0), limit=9)
    await rig.store.delete([row.object_key])
    answer = await read_from(rig, 0)
    assert (records(answer), answer.error) == ([(0, b"a")], None)


async def test_a_gap_between_segments_and_rows_ends_the_answer_and_is_then_told(
    rig: TopicRig,
) -> None:
    await fill(rig, 0, b"a", b"b", b"c")
    await rig.convert(0, up_to=1)
    rig.damage("DELETE FROM batches WHERE base_offset = 1")
    assert records(await read_from(rig, 0)) == [(0, b"a")]
    assert isinstance((await read_from(rig, 1)).error, RowMissingError)


async def test_rows_that_do_not_begin_at_the_boundary_are_never_added_to_segments(
    rig: TopicRig,
) -> None:
    await fill(rig, 0, b"a", b"b", b"c")
    await rig.convert(0, up_to=1)

    async def without_the_first_row(found: list[FoundBatches]) -> list[FoundBatches]:
        return [replace(one, pieces=[*one.segments, *one.rows[1:]]) for one in found]

    rig.control.after_look.append(without_the_first_row)
    assert records(await read_from(rig, 0)) == [(0, b"a")]


async def test_a_segment_that_is_missing_is_damage_and_never_skipped(rig: TopicRig) -> None:
    await fill(rig, 0, b"a", b"b", b"c")
    await rig.convert(0, up_to=1)
    await rig.convert(0, up_to=2)
    rig.damage("DELETE FROM segments WHERE base_offset = 0")
    answer = await read_from(rig, 0)
    assert isinstance(answer.error, RowMissingError)
    assert records(await read_from(rig, 1)) == [(1, b"b"), (2, b"c")]


async def test_what_was_deleted_in_segments_is_out_of_range(rig: TopicRig) -> None:
    await rig.append(0, batch(b"a", b"b", b"c"))
    await rig.convert(0)
    await rig.control.inner.log.delete_records({rig.part(): Offset(2)})
    assert isinstance((await read_from(rig, 1)).error, OffsetOutOfRangeError)
    assert records(await read_from(rig, 2))[-1] == (2, b"c")


# Shares.


async def test_partitions_in_both_tiers_share_the_bytes(rig: TopicRig) -> None:
    size = len(batch(b"x" * 100))
    for partition in range(3):
        await fill(rig, partition, *[b"x" * 100] * 10)
    await rig.convert(0)
    await rig.convert(1, up_to=2)
    spans = [rig.span(partition, 0, 3 * size) for partition in range(3)]
    answers = await rig.read(*spans, max_bytes=100 * size)
    assert [len(records(answer)) for answer in answers] == [3, 3, 3]


async def test_a_reader_of_segments_with_too_small_a_budget_still_moves_on(rig: TopicRig) -> None:
    for partition in range(2):
        await fill(rig, partition, b"x" * 1000, b"y")
        await rig.convert(partition)
    first, second = await rig.read(rig.span(0, 0, 1), rig.span(1, 0, 1), max_bytes=1)
    assert records(first) == [(0, b"x" * 1000)]
    assert (second.parts, second.error) == ([], None)


# Failures.


async def test_a_segment_that_fails_fails_its_partition_alone(rig: TopicRig) -> None:
    await fill(rig, 0, b"a", b"b")
    await fill(rig, 1, b"c")
    await rig.convert(0, up_to=1)
    rig.segments.failure = StoreUnavailableError("away")
    failed, served = await rig.read(rig.span(0, 0), rig.span(1, 0))
    assert isinstance(failed.error, StoreUnavailableError)
    assert (failed.parts, failed.high_watermark) == ((), 2)
    assert records(served) == [(0, b"c")]
    assert records(await read_from(rig, 1)) == [(1, b"b")]


async def test_a_segment_that_is_gone_is_resolved_once_more(rig: TopicRig) -> None:
    await fill(rig, 0, b"a")
    segment = await rig.convert(0)

    async def said_to_be_another(found: list[FoundBatches]) -> list[FoundBatches]:
        gone = replace(segment, segment_id=SegmentId(uuid4()))
        return [replace(one, pieces=[gone]) for one in found]

    rig.control.after_look.append(said_to_be_another)
    assert records(await read_from(rig, 0)) == [(0, b"a")]
    assert rig.control.looks == 2


async def test_a_segment_that_stays_gone_fails_the_read(rig: TopicRig) -> None:
    await fill(rig, 0, b"a")
    rig.segments.remove(await rig.convert(0))
    assert isinstance((await read_from(rig, 0)).error, ObjectNotFoundError)
    assert rig.control.looks == 2


async def test_rows_that_were_converted_after_the_look_are_found_again_as_segments(
    rig: TopicRig,
) -> None:
    await fill(rig, 0, b"a", b"b")
    rows = await rig.control.inner.log.all_coordinates(rig.part(0), limit=9)

    async def converted_meanwhile(found: list[FoundBatches]) -> list[FoundBatches]:
        await rig.convert(0)
        await rig.store.delete([row.object_key for row in rows])
        return found

    rig.control.after_look.append(converted_meanwhile)
    assert records(await read_from(rig, 0)) == [(0, b"a"), (1, b"b")]


@pytest.mark.parametrize("error", [IndexObjectDamagedError, IndexDamagedError])
async def test_indexes_that_do_not_fit_their_row_are_resolved_once_more(
    rig: TopicRig, error: type[StratalogError]
) -> None:
    """A repair puts new indexes before it replaces the row's description of them."""
    await fill(rig, 0, b"a")
    await rig.convert(0)
    rig.segments.failure = error("not what the manifest says")

    async def nothing(found: list[FoundBatches]) -> list[FoundBatches]:
        return found

    async def repaired(found: list[FoundBatches]) -> list[FoundBatches]:
        rig.segments.failure = None
        return found

    rig.control.after_look += [nothing, repaired]
    assert records(await read_from(rig, 0)) == [(0, b"a")]
    rig.segments.failure = error("not what the manifest says")
    assert isinstance((await read_from(rig, 0)).error, error)
    assert rig.control.looks == 4


async def test_what_is_resolved_once_more_gets_no_more_than_what_is_left(rig: TopicRig) -> None:
    for partition in range(2):
        await fill(rig, partition, *(b"%d" % value for value in range(10)))
    segment = await rig.convert(0)

    async def said_to_be_another(found: list[FoundBatches]) -> list[FoundBatches]:
        gone = replace(segment, segment_id=SegmentId(uuid4()))
        return [replace(found[0], pieces=[gone]), *found[1:]]

    rig.control.after_look.append(said_to_be_another)
    size = len(batch(b"0"))
    answers = await rig.read(rig.span(0, 0), rig.span(1, 0), max_bytes=10 * size)
    # Whatever is left, there is a first row for whom the others left nothing.
    assert [len(records(answer)) for answer in answers] == [1, 10]


# Waiting.


async def test_nobody_waits_in_front_of_segments_however_little_they_hold(rig: TopicRig) -> None:
    await fill(rig, 0, b"a")
    await rig.convert(0)
    answers = await rig.read(rig.span(0, 0), min_bytes=1 << 20, max_wait_ms=FOR_EVER_MS)
    assert records(answers[0]) == [(0, b"a")]


async def test_behind_the_last_segment_a_reader_waits_as_ever(rig: TopicRig) -> None:
    await fill(rig, 0, b"a")
    await rig.convert(0)
    looked = asyncio.Event()

    async def tell(found: list[FoundBatches]) -> list[FoundBatches]:
        looked.set()
        return found

    rig.control.after_look.append(tell)
    reading = asyncio.ensure_future(rig.read(rig.span(0, 1), max_wait_ms=FOR_EVER_MS))
    await soon(looked.wait())
    await rig.append(0, batch(b"b"))
    [answer] = await reading
    assert records(answer) == [(1, b"b")]


# Remote reads switched off.


async def test_switched_off_reads_of_segments_are_refused_and_blocks_are_served(
    rig: TopicRig,
) -> None:
    for partition in range(2):
        await fill(rig, partition, b"a", b"b")
        await rig.convert(partition, up_to=1)
    rig.switch_remote_reads(on=False)
    remote, local = await rig.read(rig.span(0, 0), rig.span(1, 1))
    assert isinstance(remote.error, RemoteReadsOffError)
    assert "remote.reads" in str(remote.error)
    assert (remote.parts, remote.high_watermark) == ((), 2)
    assert records(local) == [(1, b"b")]


async def test_a_refused_reader_is_answered_when_its_wait_is_over(rig: TopicRig) -> None:
    await fill(rig, 0, b"a", b"b")
    await rig.convert(0, up_to=1)
    rig.switch_remote_reads(on=False)
    reading = asyncio.ensure_future(rig.read(rig.span(0, 0), max_wait_ms=FOR_EVER_MS))
    await asyncio.sleep(0.05)
    assert not reading.done(), "clients that ask again at once would spin"
    rig.reader.stop()
    [answer] = await reading
    assert isinstance(answer.error, RemoteReadsOffError)


# Committed records only.

LONG = AbortedTransaction(ProducerId(8), Offset(1), Offset(4), Offset(5))


async def aborted_for(rig: TopicRig, offset: int, max_bytes: int = 1 << 20) -> list[int]:
    [answer] = await rig.read(rig.span(0, offset, max_bytes), committed=True)
    assert answer.error is None
    return [one.producer_id for one in answer.aborted]


async def test_readers_of_committed_records_are_told_which_transactions_were_aborted(
    rig: TopicRig,
) -> None:
    await fill(rig, 0, b"a", b"b", b"c", b"d", b"e", b"f")
    await rig.convert(0, up_to=3, aborted=[FIRST])
    await rig.convert(0, up_to=5, aborted=[LONG])
    size = len(batch(b"a"))
    assert await aborted_for(rig, 0) == [7, 8]
    assert await aborted_for(rig, 0, size) == [7], "the long one begins after this answer"
    assert await aborted_for(rig, 2, size) == [8], "its marker is in a later segment"
    assert await aborted_for(rig, 5) == []
    [answer] = await rig.read(rig.span(0, 0))
    assert answer.aborted == (), "others do not want to know"


async def test_segments_that_are_chained_later_are_asked_too(rig: TopicRig) -> None:
    await fill(rig, 0, b"a", b"b", b"c", b"d", b"e")
    await rig.convert(0, up_to=2)
    assert await aborted_for(rig, 0) == []
    await rig.convert(0, up_to=5, aborted=[LONG])
    assert await aborted_for(rig, 0) == [8]
    assert await aborted_for(rig, 1) == [8]


async def test_without_the_aborted_transactions_nothing_is_served(
    rig: TopicRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise StoreUnavailableError("away")

    await fill(rig, 0, b"a", b"b")
    await rig.convert(0, aborted=[FIRST])
    monkeypatch.setattr(rig.segments, "aborted", fail)
    [answer] = await rig.read(rig.span(0, 0), committed=True)
    assert isinstance(answer.error, StoreUnavailableError)
    assert answer.parts == ()


@pytest.mark.parametrize("start", [2, 3, 4])
async def test_records_whose_markers_were_deleted_after_the_look_are_not_served(
    rig: TopicRig, start: int
) -> None:
    """The bytes are still there, but nothing would say any more that they were aborted."""
    await fill(rig, 0, b"a", b"b", b"c", b"d")
    await rig.convert(0, up_to=1)
    await rig.convert(0, up_to=2, aborted=[FIRST])
    await rig.convert(0, up_to=3)

    async def deleted_meanwhile(found: list[FoundBatches]) -> list[FoundBatches]:
        await rig.control.inner.log.delete_records({rig.part(): Offset(start)})
        return found

    rig.control.after_look.append(deleted_meanwhile)
    [answer] = await rig.read(rig.span(0, 0), committed=True)
    assert isinstance(answer.error, OffsetOutOfRangeError)
    assert (answer.log_start, list(answer.parts)) == (start, [])


async def test_what_is_remembered_of_deleted_segments_does_not_keep_later_ones_back(
    rig: TopicRig,
) -> None:
    await fill(rig, 0, b"a", b"b", b"c", b"d", b"e")
    await rig.convert(0, up_to=2)
    assert await aborted_for(rig, 0) == []
    await rig.convert(0, up_to=3)
    await rig.convert(0, up_to=5, aborted=[LONG])
    await rig.control.inner.log.delete_records({rig.part(): Offset(3)})
    assert await aborted_for(rig, 3) == [8]


async def test_a_transaction_index_that_was_made_anew_is_read_anew(
    rig: TopicRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that was remembered speaks of the index as it was."""
    await fill(rig, 0, b"a", b"b")
    segment = await rig.convert(0, aborted=[FIRST])
    assert await aborted_for(rig, 0) == [7]
    assert segment.uploaded is not None
    repaired = replace(segment.uploaded, manifest='{"repaired":true}')
    await rig.control.inner.segments.replace_upload(segment.segment_id, repaired)
    read = rig.segments.aborted

    async def only_the_new_one(segments: list[Segment], *rest: Offset) -> list[AbortedTransaction]:
        if any(one.uploaded != repaired for one in segments):
            raise IndexDamagedError("not what the manifest says")
        return await read(segments, *rest)

    monkeypatch.setattr(rig.segments, "aborted", only_the_new_one)
    assert await aborted_for(rig, 0) == [7]


async def test_readers_of_committed_records_see_nothing_of_an_open_transaction(
    rig: TopicRig,
) -> None:
    await rig.append(0, batch(b"a"), batch(b"b"))
    await rig.append(0, batch(b"c"))
    for stable, seen in ((1, [b"a"]), (2, [b"a", b"b"]), (0, []), (3, [b"a", b"b", b"c"])):
        rig.damage("UPDATE partitions SET last_stable = ? WHERE partition = 0", stable)
        [committed] = await rig.read(rig.span(0, 0), committed=True)
        assert [value for _, value in records(committed)] == seen
        [everything] = await rig.read(rig.span(0, 0))
        assert len(records(everything)) == 3


async def test_a_reader_of_committed_records_waits_at_the_last_stable_offset(
    rig: TopicRig,
) -> None:
    await rig.append(0, batch(b"a"))
    await rig.append(0, batch(b"b"))
    rig.damage("UPDATE partitions SET last_stable = 1 WHERE partition = 0")
    reading = asyncio.ensure_future(
        rig.read(rig.span(0, 1), max_wait_ms=FOR_EVER_MS, committed=True)
    )
    await asyncio.sleep(0.05)
    assert not reading.done()
    rig.reader.stop()
    [answer] = await reading
    assert (answer.parts, answer.error, answer.last_stable) == ([], None, 1)
