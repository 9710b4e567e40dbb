from tests.unit.topic.rig import NOW_MS, TopicRig, batch, timed

from stratalog.control.log.model import TimeQuery
from stratalog.ids import Offset


async def test_the_ends_of_partitions_that_exist_are_told(rig: TopicRig) -> None:
    await rig.append(0, batch(b"a", b"b", b"c"))
    await rig.control.inner.log.delete_records({rig.part(): Offset(1)})
    asked = [rig.part(0), rig.part(1), rig.part(9)]
    earliest = await rig.offsets.earliest(asked)
    latest = await rig.offsets.latest(asked)
    assert {key.partition: found.offset for key, found in earliest.items()} == {0: 1, 1: 0}
    assert {key.partition: found.offset for key, found in latest.items()} == {0: 3, 1: 0}
    assert latest[rig.part(0)].timestamp == -1


async def at_time(rig: TopicRig, after_ms: int) -> tuple[int, int] | None:
    query = TimeQuery(
        topic_id=rig.topic.id, partition=rig.part().partition, timestamp=NOW_MS + after_ms
    )
    [found] = await rig.offsets.at_time([query])
    return None if found is None else (found.offset, found.timestamp - NOW_MS)


async def test_a_time_leads_to_the_first_record_that_is_not_older(rig: TopicRig) -> None:
    await rig.append(0, timed(0, 10, 20), timed(30, 5, 50))
    await rig.append(0, timed(60))
    assert await at_time(rig, -5) == (0, 0)
    assert await at_time(rig, 10) == (1, 10)
    assert await at_time(rig, 11) == (2, 20)
    assert await at_time(rig, 21) == (3, 30)
    assert await at_time(rig, 31) == (5, 50)
    assert await at_time(rig, 60) == (6, 60)
    assert await at_time(rig, 61) is None


async def test_a_time_never_leads_to_a_deleted_record(rig: TopicRig) -> None:
    await rig.append(0, timed(0, 10, 20, 30))
    await rig.control.inner.log.delete_records({rig.part(): Offset(2)})
    assert await at_time(rig, 0) == (2, 20)


async def test_a_time_whose_record_was_deleted_leads_on_to_a_later_row(rig: TopicRig) -> None:
    await rig.append(0, timed(50, 1, 2))
    await rig.append(0, timed(3))
    await rig.append(0, timed(40, 60))
    await rig.control.inner.log.delete_records({rig.part(): Offset(1)})
    assert await at_time(rig, 45) == (5, 60)
    assert await at_time(rig, 61) is None


async def test_the_newest_record_is_the_first_with_the_greatest_time(rig: TopicRig) -> None:
    await rig.append(0, timed(5, 70, 6), timed(70))
    await rig.append(0, timed(8))
    found = await rig.offsets.newest([rig.part(0), rig.part(1)])
    newest = found[rig.part(0)]
    assert newest is not None
    assert (newest.offset, newest.timestamp) == (1, NOW_MS + 70)
    assert found[rig.part(1)] is None


async def newest(rig: TopicRig) -> tuple[int, int] | None:
    found = (await rig.offsets.newest([rig.part()]))[rig.part()]
    return None if found is None else (found.offset, found.timestamp - NOW_MS)


async def test_the_newest_record_is_never_a_deleted_one(rig: TopicRig) -> None:
    await rig.append(0, timed(90, 20, 10, 20))
    await rig.append(0, timed(15))
    assert await newest(rig) == (0, 90)
    await rig.control.inner.log.delete_records({rig.part(): Offset(1)})
    assert await newest(rig) == (1, 20)
    await rig.control.inner.log.delete_records({rig.part(): Offset(2)})
    assert await newest(rig) == (3, 20)
    await rig.append(0, timed(20, 30), timed(30))
    assert await newest(rig) == (6, 30)
    await rig.control.inner.log.delete_records({rig.part(): Offset(8)})
    assert await newest(rig) is None


async def test_without_a_remote_tier_nothing_is_tiered_whatever_is_deleted(rig: TopicRig) -> None:
    await rig.append(0, timed(0, 1, 2))
    await rig.append(0, timed(3))
    for start in (0, 1, 3, 4):
        await rig.control.inner.log.delete_records({rig.part(): Offset(start)})
        assert await rig.offsets.latest_tiered([rig.part()]) == {rig.part(): None}
        local = await rig.offsets.earliest_local([rig.part()])
        assert local[rig.part()].offset == start


async def test_the_tiers_end_where_the_boundaries_say(rig: TopicRig) -> None:
    await rig.append(0, timed(0, 1, 2))
    await rig.append(0, timed(3, 4))
    rig.damage("UPDATE partitions SET remote_end = 3, block_start = 3 WHERE partition = 0")
    tiered = (await rig.offsets.latest_tiered([rig.part()]))[rig.part()]
    assert tiered is not None
    assert tiered.offset == 2
    assert (await rig.offsets.earliest_local([rig.part()]))[rig.part()].offset == 3
    assert (await rig.offsets.earliest([rig.part()]))[rig.part()].offset == 0
    assert await rig.offsets.latest_tiered([rig.part(99)]) == {}
