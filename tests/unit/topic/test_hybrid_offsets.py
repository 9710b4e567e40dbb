"""Offsets by name and by time over both tiers, also after records were deleted."""

import pytest
from tests.unit.topic.rig import NOW_MS, TopicRig, batch, timed

from stratalog.control.log.model import FoundBatches, TimeQuery
from stratalog.ids import Offset
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.topic.errors import RemoteReadsOffError


async def at_time(rig: TopicRig, after_ms: int) -> tuple[int, int] | None:
    query = TimeQuery(
        topic_id=rig.topic.id, partition=rig.part().partition, timestamp=NOW_MS + after_ms
    )
    [found] = await rig.offsets.at_time([query])
    return None if found is None else (found.offset, found.timestamp - NOW_MS)


async def newest(rig: TopicRig) -> tuple[int, int] | None:
    found = (await rig.offsets.newest([rig.part()]))[rig.part()]
    return None if found is None else (found.offset, found.timestamp - NOW_MS)


async def delete_before(rig: TopicRig, offset: int) -> None:
    await rig.control.inner.log.delete_records({rig.part(): Offset(offset)})


@pytest.mark.parametrize("converted", [(), (3,), (3, 5), (5,), (3, 5, 6)])
async def test_a_time_leads_to_the_same_record_wherever_the_boundary_is(
    rig: TopicRig, converted: tuple[int, ...]
) -> None:
    await rig.append(0, timed(0, 10, 20))
    await rig.append(0, timed(30, 5))
    await rig.append(0, timed(60))
    for end in converted:
        await rig.convert(0, up_to=end)
    found = [await at_time(rig, after) for after in (-5, 10, 11, 21, 31, 60, 61)]
    assert found == [(0, 0), (1, 10), (2, 20), (3, 30), (5, 60), (5, 60), None]
    assert await newest(rig) == (5, 60)


@pytest.mark.parametrize("converted", [(), (3,), (4,), (3, 4), (3, 4, 6)])
async def test_a_time_whose_record_was_deleted_leads_on_across_the_boundary(
    rig: TopicRig, converted: tuple[int, ...]
) -> None:
    await rig.append(0, timed(50, 1, 2))
    await rig.append(0, timed(3))
    await rig.append(0, timed(40, 60))
    for end in converted:
        await rig.convert(0, up_to=end)
    await delete_before(rig, 1)
    assert await at_time(rig, 45) == (5, 60)
    assert await at_time(rig, 2) == (2, 2)
    assert await at_time(rig, 61) is None


@pytest.mark.parametrize("converted", [(), (4,), (5,), (4, 5)])
async def test_the_newest_record_is_never_a_deleted_one_wherever_the_boundary_is(
    rig: TopicRig, converted: tuple[int, ...]
) -> None:
    await rig.append(0, timed(90, 20, 10, 20))
    await rig.append(0, timed(20))
    for end in converted:
        await rig.convert(0, up_to=end)
    found = [await newest(rig)]
    for start in (1, 2, 4, 5):
        await delete_before(rig, start)
        found.append(await newest(rig))
    assert found == [(0, 90), (1, 20), (3, 20), (4, 20), None]


async def test_the_tiers_end_where_segments_do(rig: TopicRig) -> None:
    await rig.append(0, timed(0, 1, 2))
    await rig.append(0, timed(3, 4))
    await rig.convert(0, up_to=3)

    async def ends() -> tuple[int, int | None, int]:
        part = rig.part()
        tiered = (await rig.offsets.latest_tiered([part]))[part]
        earliest = (await rig.offsets.earliest([part]))[part].offset
        local = (await rig.offsets.earliest_local([part]))[part].offset
        return earliest, None if tiered is None else tiered.offset, local

    assert await ends() == (0, 2, 3)
    await delete_before(rig, 2)
    assert await ends() == (2, 2, 3)
    await delete_before(rig, 3)
    assert await ends() == (3, None, 3)
    await rig.convert(0)
    assert await ends() == (3, 4, 5)


async def test_boundaries_are_told_with_the_epoch_they_were_written_in(rig: TopicRig) -> None:
    await rig.append(0, timed(0, 1, 2))
    await rig.append(0, timed(3, 4))
    await rig.convert(0, up_to=3)
    rig.damage("UPDATE heads SET leader_epoch = 6 WHERE partition = 0")
    rig.damage(
        "INSERT INTO epochs (topic_id, partition, leader_epoch, start_offset)"
        " SELECT topic_id, partition, 6, 3 FROM heads WHERE partition = 0"
    )
    part = rig.part()
    tiered = (await rig.offsets.latest_tiered([part]))[part]
    assert tiered is not None
    assert (await rig.offsets.earliest([part]))[part].leader_epoch == 0
    assert tiered.leader_epoch == 0
    assert (await rig.offsets.earliest_local([part]))[part].leader_epoch == 6
    assert (await rig.offsets.latest([part]))[part].leader_epoch == 6


async def test_a_time_in_segments_is_refused_while_their_reads_are_off(rig: TopicRig) -> None:
    await rig.append(0, timed(0))
    await rig.append(0, timed(10))
    await rig.convert(0, up_to=1)
    rig.switch_remote_reads(on=False)
    with pytest.raises(RemoteReadsOffError):
        await at_time(rig, 0)
    assert await at_time(rig, 5) == (1, 10)
    assert await newest(rig) == (1, 10)


async def test_a_segment_that_is_gone_is_looked_for_once_more(
    rig: TopicRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.append(0, timed(0))
    segment = await rig.convert(0)
    log = rig.segments.remove(segment)
    with pytest.raises(ObjectNotFoundError):
        await at_time(rig, 0)
    looks = []
    find_by_time = rig.control.inner.log.find_by_time

    async def put_back(queries: list[TimeQuery]) -> object:
        looks.append(queries)
        if len(looks) == 2:
            rig.segments.put(segment.segment_id, log, ())
        return await find_by_time(queries)

    monkeypatch.setattr(rig.control.log, "find_by_time", put_back)
    assert await at_time(rig, 0) == (0, 0)


async def test_a_walk_past_deleted_records_goes_on_where_the_boundary_has_moved_to(
    rig: TopicRig,
) -> None:
    await rig.append(0, batch(b"a", b"b", times=[NOW_MS + 90, NOW_MS]))
    for time in range(1, 9):
        await rig.append(0, timed(time))
    await rig.convert(0, up_to=4)
    await delete_before(rig, 1)

    async def converted_meanwhile(found: list[FoundBatches]) -> list[FoundBatches]:
        await rig.convert(0)
        return found

    rig.control.after_look.append(converted_meanwhile)
    assert await at_time(rig, 7) == (8, 7)
    assert await newest(rig) == (9, 8)


@pytest.mark.parametrize("converted", [(), (4,), (4, 5)])
async def test_a_walk_past_deleted_records_goes_on_behind_what_is_deleted_meanwhile(
    rig: TopicRig, converted: tuple[int, ...]
) -> None:
    for times in ((50, 1, 2), (3,), (4,), (40, 60)):
        await rig.append(0, timed(*times))
    for end in converted:
        await rig.convert(0, up_to=end)
    await delete_before(rig, 1)

    async def deleted_meanwhile(_: list[FoundBatches]) -> list[FoundBatches]:
        await delete_before(rig, 5)
        return await rig.control.inner.log.find_batches([rig.span(0, 3)])

    rig.control.after_look.append(deleted_meanwhile)
    assert await at_time(rig, 45) == (6, 60)
    assert rig.control.after_look == []
