from collections.abc import AsyncIterable

import pytest
from tests.unit.pipeline.task_checks import check_split
from tests.unit.pipeline.world import (
    START_MS,
    Sent,
    World,
    merge_of,
    payload,
    segment_plan,
    sent,
    split_plan,
    swapped,
)

from stratalog.batch.header import TimestampType
from stratalog.block.footer import FooterRange, decode_footer
from stratalog.checks.inspect import inspect_object
from stratalog.control.log.commit_plan import MAX_ROW_BYTES
from stratalog.ids import Offset
from stratalog.objects.errors import StoreUnavailableError
from stratalog.objects.store import Buffer
from stratalog.pipeline.kinds.merge_task import run_merge
from stratalog.pipeline.kinds.split_task import run_split


async def thin_world(blocks: int = 5, partitions: int = 4) -> World:
    world = World()
    for number in range(blocks):
        here = [each for each in range(partitions) if (each + number) % 3 or each == 0]
        await world.commit(*(sent(each, 1 + each) for each in here))
    return world


async def test_a_split_file_holds_each_partition_in_one_piece() -> None:
    world = await thin_world()
    done = await run_split(world.split_task().parts, world.place())
    made = await check_split(world, done)
    assert not done.failed
    assert [len(part.new_rows) for part in made.parts] == [1, 1, 1, 1]
    assert [part.new_rows[0].partition for part in made.parts] == [0, 1, 2, 3]


async def test_a_file_of_which_the_store_took_too_little_is_not_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await thin_world()
    place = world.place()
    put_stream = place.objects.put_stream

    async def torn(key: str, parts: AsyncIterable[Buffer]) -> int:
        return await put_stream(key, parts) - 1

    monkeypatch.setattr(place.objects, "put_stream", torn)
    done = await run_split(world.split_task().parts, place)
    assert not done.made
    assert len(done.failed) == 4


async def test_every_source_object_is_read_once() -> None:
    world = await thin_world(20, 30)
    await run_split(world.split_task().parts, world.place())
    assert sorted(key for key, _ in world.store.reads) == sorted(world.blocks)


async def test_every_attempt_writes_an_object_of_its_own() -> None:
    world = await thin_world()
    task = world.split_task()
    first = await run_split(task.parts, world.place())
    second = await run_split(task.parts, world.place())
    assert first.made[0].key != second.made[0].key
    assert len(await world.keys("splits/")) == 2


async def test_rows_part_where_epoch_or_timestamp_type_change() -> None:
    world = World()
    await world.commit(sent(0), sent(0, timestamp_type=TimestampType.LOG_APPEND_TIME))
    await world.commit(sent(0, timestamp_type=TimestampType.LOG_APPEND_TIME))
    world.epochs[0] = 2
    await world.commit(sent(0, timestamp_type=TimestampType.LOG_APPEND_TIME))
    await world.commit(sent(0), sent(0))
    made = await check_split(world, await run_split(world.split_task().parts, world.place()))
    rows = made.parts[0].new_rows
    assert [(row.base_offset, row.last_offset) for row in rows] == [(0, 0), (1, 2), (3, 3), (4, 5)]
    assert [row.leader_epoch for row in rows] == [0, 0, 2, 2]
    assert rows[1].max_timestamp == rows[1].committed_ms > rows[0].max_timestamp == START_MS


async def test_rows_end_before_they_become_too_large() -> None:
    size = len(payload(1, 100_000))
    fitting = MAX_ROW_BYTES // size
    world = World()
    for _ in range(2 * fitting + 1):
        await world.commit(sent(0, size=100_000))
    made = await check_split(world, await run_split(world.split_task().parts, world.place()))
    assert [row.byte_size for row in made.parts[0].new_rows] == [
        fitting * size, fitting * size, size,
    ]  # fmt: skip


@pytest.mark.parametrize(("spare", "rows"), [(0, 1), (-1, 2)])
async def test_a_row_may_be_as_large_as_the_bound(spare: int, rows: int) -> None:
    world = World()
    first = payload(1, 1000)
    overhead = len(payload(1, MAX_ROW_BYTES // 2)) - MAX_ROW_BYTES // 2
    rest = payload(1, MAX_ROW_BYTES - len(first) - overhead - spare)
    assert len(first) + len(rest) == MAX_ROW_BYTES - spare
    await world.commit(Sent(0, first, 1))
    await world.commit(Sent(0, rest, 1))
    made = await check_split(world, await run_split(world.split_task().parts, world.place()))
    assert len(made.parts[0].new_rows) == rows


async def test_a_batch_larger_than_a_row_is_a_row() -> None:
    world = World()
    await world.commit(sent(0), Sent(0, payload(1, MAX_ROW_BYTES), 1), sent(0))
    made = await check_split(world, await run_split(world.split_task().parts, world.place()))
    assert [row.base_offset for row in made.parts[0].new_rows] == [0, 1, 2]


async def test_commit_times_never_decrease() -> None:
    world = await thin_world()
    rows = world.rows[0]
    size = len(payload(1, MAX_ROW_BYTES))
    await world.commit(Sent(0, payload(1, MAX_ROW_BYTES), 1))
    assert rows[-1].byte_size == size
    rows[-1] = rows[-1]._replace(committed_ms=5)
    done = await run_split([split_plan(rows)], world.place())
    new_rows = done.made[0].parts[0].new_rows
    assert [row.committed_ms for row in new_rows] == [rows[-2].committed_ms] * 2
    assert [row.oldest_ms for row in new_rows] == [rows[0].committed_ms, 5]


async def test_split_files_are_split_again() -> None:
    world = await thin_world()
    first = await run_split(world.split_task().parts, world.place())
    assert [*swapped(world, first)] == [0, 1, 2, 3]
    await world.commit(*(sent(each, 2) for each in range(4)))
    second = await run_split(world.split_task().parts, world.place())
    made = await check_split(world, second)
    assert [len(part.old_rows) for part in made.parts] == [2] * 4
    assert [len(part.new_rows) for part in made.parts] == [1] * 4
    for part, old in zip(made.parts, first.made[0].parts, strict=True):
        assert part.new_rows[0].oldest_ms == old.old_rows[0].committed_ms
        assert part.new_rows[0].committed_ms == part.old_rows[-1].committed_ms


async def test_split_then_merge_makes_the_same_segments_as_merge() -> None:
    world = await thin_world()
    direct = await run_merge(merge_of(world.segments()), world.place())
    assert [*swapped(world, await run_split(world.split_task().parts, world.place()))]
    merged = await run_merge(merge_of(world.segments()), world.place())
    assert [log.built for log in merged.made] == [log.built for log in direct.made]
    for one, other in zip(direct.made, merged.made, strict=True):
        assert await world.log_in_store(one.key_base) == await world.log_in_store(other.key_base)


async def test_the_footer_is_an_index_of_offsets_and_times() -> None:
    world = await thin_world()
    made = (await run_split(world.split_task().parts, world.place())).made[0]
    stored = bytes((await world.store.get(made.key)).data)
    data_end = made.parts[-1].new_rows[-1].byte_offset + made.parts[-1].new_rows[-1].byte_size
    footer = decode_footer(stored[data_end:])
    assert footer.stamped
    assert footer.block_id == made.object_id
    assert footer.broker_id == -1
    for entry, part in zip(footer.partitions, made.parts, strict=True):
        assert entry.topic_name == "orders"
        for named, row in zip(entry.batches, part.new_rows, strict=True):
            assert isinstance(named, FooterRange)
            assert (named.byte_offset, named.byte_size) == (row.byte_offset, row.byte_size)
            assert (named.base_offset, named.last_offset) == (row.base_offset, row.last_offset)
            assert named.max_timestamp == row.max_timestamp
    assert [entry.batch_count for entry in footer.partitions] == [5, 4, 3, 3]


async def test_inspect_shows_a_split_file() -> None:
    world = await thin_world()
    made = (await run_split(world.split_task().parts, world.place())).made[0]
    inspection = await inspect_object(world.store, made.key, records=True)
    assert inspection.ok
    shown = [(batch.partition, batch.header) for batch in inspection.batches]
    assert [(owner and owner.partition, header and header.base_offset) for owner, header in shown][
        :6
    ] == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0)]


async def test_inspect_finds_damage_in_a_split_file() -> None:
    world = await thin_world()
    made = (await run_split(world.split_task().parts, world.place())).made[0]
    row = made.parts[1].new_rows[0]
    await world.damage(row, 7)
    inspection = await inspect_object(world.store, made.key)
    assert not inspection.ok
    assert [batch.error for batch in inspection.batches if batch.error] == [
        "it says offset 255 where 0 is next",
        "it says offset 2 where 257 is next",
    ]


async def test_a_failing_part_is_left_out() -> None:
    world = await thin_world()
    bad = world.rows[1][1]
    await world.damage(bad, 61)
    task = world.split_task()
    done = await run_split(task.parts, world.place())
    made = await check_split(world, done)
    assert [part.new_rows[0].partition for part in made.parts] == [0, 2, 3]
    (failure,) = done.failed
    assert failure.token == task.parts[1].token
    assert not failure.retriable
    assert f"object {bad.object_key}" in failure.error
    assert f"offset {bad.base_offset}" in failure.error
    assert (await inspect_object(world.store, made.key)).ok


async def test_an_object_that_is_gone_costs_those_that_need_it() -> None:
    world = await thin_world()
    await world.commit(sent(2))
    await world.store.delete([world.blocks[-1]])
    done = await run_split(world.split_task().parts, world.place())
    made = await check_split(world, done)
    assert [part.new_rows[0].partition for part in made.parts] == [0, 1, 3]
    assert [failure.retriable for failure in done.failed] == [True]


async def test_without_a_good_part_there_is_no_file() -> None:
    world = await thin_world()
    for key in world.blocks:
        await world.store.delete([key])
    done = await run_split(world.split_task().parts, world.place())
    assert len(done.failed) == 4
    assert not done.made
    assert not await world.keys("splits/")


async def test_a_store_that_takes_no_file_is_worth_another_try() -> None:
    world = await thin_world()
    world.store.failures["splits/"] = StoreUnavailableError("put: 503")
    done = await run_split(world.split_task().parts, world.place())
    assert [(failure.error, failure.retriable) for failure in done.failed] == [
        ("put: 503", True)
    ] * 4
    assert not done.made


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"base_offset": Offset(9), "last_offset": Offset(9)}, "is next"),
        ({"last_offset": Offset(7)}, "batches end before"),
        ({"stamped": True}, "where 1 and 0 are next"),
        ({"byte_size": 5}, "short of a header"),
    ],
)
async def test_rows_that_are_not_what_they_say_are_refused(
    change: dict[str, Offset], complaint: str
) -> None:
    world = await thin_world()
    world.rows[0][1] = world.rows[0][1]._replace(**change)  # type: ignore[arg-type]
    done = await run_split(world.split_task().parts, world.place())
    (failure,) = done.failed
    assert complaint in failure.error
    assert not failure.retriable
    assert len(done.made[0].parts) == 3


async def test_parts_are_sorted_whatever_their_order_in_the_plan() -> None:
    world = await thin_world()
    task = world.split_task()
    done = await run_split([*reversed(task.parts)], world.place())
    made = await check_split(world, done)
    assert [part.new_rows[0].partition for part in made.parts] == [0, 1, 2, 3]


async def test_little_is_read_ahead_if_little_may_be() -> None:
    world = await thin_world(20)
    done = await run_split(world.split_task().parts, world.place(), read_ahead_bytes=1)
    await check_split(world, done)


async def test_a_merge_of_a_damaged_split_file_names_it() -> None:
    world = await thin_world()
    assert [*swapped(world, await run_split(world.split_task().parts, world.place()))]
    await world.damage(world.rows[2][0], 100)
    done = await run_merge(merge_of([segment_plan(world.rows[2])]), world.place())
    assert world.rows[2][0].object_key in done.failed[0].error
