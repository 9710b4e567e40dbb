"""Any blocks, any cut into tasks: segments are the stamped batches, by whichever way they came."""

import asyncio
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.pipeline.task_checks import check_logs, check_split
from tests.unit.pipeline.world import (
    Sent,
    World,
    merge_of,
    payload,
    segment_plan,
    split_plan,
    swapped,
)

from stratalog.batch.header import Codec, TimestampType
from stratalog.control.log.model import Coordinates
from stratalog.pipeline.kinds.merge_model import SegmentPlan
from stratalog.pipeline.kinds.merge_task import run_merge
from stratalog.pipeline.kinds.split_model import SplitTask
from stratalog.pipeline.kinds.split_task import run_split

EXAMPLES = 40


@st.composite
def batches(draw: st.DrawFn) -> Sent:
    records = draw(st.integers(1, 4))
    data = payload(
        records,
        draw(st.sampled_from([0, 10, 700])),
        draw(st.sampled_from([*Codec])),
        draw(st.sampled_from([-1, 7, 8])),
    )
    return Sent(
        partition=draw(st.integers(0, 4)),
        data=data,
        records=records,
        timestamp_type=draw(st.sampled_from([*TimestampType])),
        dead=draw(st.sampled_from([False, False, False, True])),
    )


blocks = st.lists(st.lists(batches(), min_size=1, max_size=8), min_size=1, max_size=6)
bumps = st.lists(st.sets(st.integers(0, 4), max_size=2), min_size=6, max_size=6)
"""Partitions whose epoch grows before each block."""


async def build(written: list[list[Sent]], bumped: list[set[int]]) -> World:
    world = World()
    for block, partitions in zip(written, bumped, strict=False):
        for partition in partitions:
            world.epochs[partition] += 1
        await world.commit(*block)
    return world


def cut(data: st.DataObject, rows: list[Coordinates]) -> list[list[Coordinates]]:
    edges = data.draw(st.sets(st.integers(1, len(rows) - 1), max_size=2)) if len(rows) > 1 else {}
    return [rows[start:end] for start, end in pairwise([0, *sorted(edges), len(rows)])]


def any_segments(data: st.DataObject, world: World) -> list[SegmentPlan]:
    return [
        segment_plan(rows)
        for partition in sorted(world.rows)
        if world.rows[partition]
        for rows in cut(data, world.rows[partition])
    ]


@settings(max_examples=EXAMPLES, deadline=None)
@given(blocks, bumps, st.integers(1, 4), st.sampled_from([1, 500, 1 << 20]), st.data())
def test_any_merge_makes_the_stamped_batches(
    written: list[list[Sent]],
    bumped: list[set[int]],
    tasks: int,
    held_bytes: int,
    data: st.DataObject,
) -> None:
    async def scenario() -> None:
        world = await build(written, bumped)
        plans = any_segments(data, world)
        for number in range(tasks):
            mine = plans[number::tasks]
            done = await run_merge(
                merge_of(mine),
                world.place(),
                read_ahead_bytes=held_bytes,
                portion_bytes=held_bytes,
            )
            assert not done.failed
            assert len(done.made) == len(mine)
            await check_logs(world, done)

    asyncio.run(scenario())


@settings(max_examples=EXAMPLES, deadline=None)
@given(blocks, bumps, st.data())
def test_any_splits_before_a_merge_make_no_difference(
    written: list[list[Sent]], bumped: list[set[int]], data: st.DataObject
) -> None:
    async def scenario() -> None:
        world = await build(written, bumped)
        whole = {partition: [*rows] for partition, rows in world.rows.items() if rows}
        direct = await run_merge(merge_of([*map(segment_plan, whole.values())]), world.place())
        for _ in range(data.draw(st.integers(1, 2))):
            chosen = [
                data.draw(st.sampled_from(cut(data, world.rows[partition]))) for partition in whole
            ]
            task = SplitTask(parts=[split_plan(rows) for rows in chosen])
            if task.parts:
                done = await run_split(task.parts, world.place())
                assert not done.failed
                await check_split(world, done)
                assert [*swapped(world, done)] == sorted(whole)
        after = [segment_plan(world.rows[partition]) for partition in whole]
        merged = await run_merge(merge_of(after), world.place())
        assert not merged.failed
        assert [log.built for log in merged.made] == [log.built for log in direct.made]
        for one, other in zip(direct.made, merged.made, strict=True):
            assert await world.log_in_store(one.key_base) == await world.log_in_store(
                other.key_base
            )

    asyncio.run(scenario())
