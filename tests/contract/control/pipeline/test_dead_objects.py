"""Objects of which little is left: they are found on a walk through the live ones, in steps."""

from collections.abc import Sequence

from tests.contract.control.building import batch, block, change, commit, part
from tests.contract.control.pipeline_building import rows_in

from stratalog.control.log.model import BlockToCommit
from stratalog.control.pipeline.model import DeadObjects, ObjectCursor
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database
from stratalog.control.topics.model import Topic
from stratalog.ids import ObjectId, Offset

MINUTE_MS = 60_000


async def look(
    plane: ControlPlane,
    after: ObjectCursor | None = None,
    *,
    live_part: float = 1.0,
    older_than_ms: int = 0,
    limit: int = 10,
) -> DeadObjects:
    return await plane.pipeline.mostly_dead_objects(
        older_than_ms=older_than_ms,
        max_live_part=live_part,
        stuck_for_ms=MINUTE_MS,
        limit=limit,
        after=after,
    )


def ids_of(found: DeadObjects) -> list[ObjectId]:
    return [each.object_id for each in found.found]


async def walk(plane: ControlPlane, *, limit: int, live_part: float = 1.0) -> list[list[ObjectId]]:
    """Return the objects that each step of a whole pass finds."""
    step = await look(plane, limit=limit, live_part=live_part)
    steps = [ids_of(step)]
    while step.after is not None:
        step = await look(plane, step.after, limit=limit, live_part=live_part)
        steps.append(ids_of(step))
    return steps


async def write(plane: ControlPlane, topic: Topic, count: int) -> list[ObjectId]:
    """Blocks with 300 bytes of partition 0 and 700 bytes of partition 1, by age."""
    blocks = [
        block(batch(part(topic, 0), 5, size=300), batch(part(topic, 1), 5, size=700))
        for _ in range(count)
    ]
    return await _committed(plane, blocks)


async def _committed(plane: ControlPlane, blocks: Sequence[BlockToCommit]) -> list[ObjectId]:
    for each in blocks:
        await plane.log.commit_blocks([each])
    return [each.object_id for each in blocks]


async def set_times(database: Database, times_ms: dict[ObjectId, int]) -> None:
    for object_id, committed_ms in times_ms.items():
        await change(
            database,
            "UPDATE objects SET committed_ms = $1 WHERE object_id = $2",
            committed_ms,
            object_id,
        )


async def kill(plane: ControlPlane, topic: Topic, count: int) -> None:
    """Delete the rows of partition 1 in the first blocks."""
    await plane.log.delete_records({part(topic, 1): Offset(5 * count)})


async def test_objects_of_which_little_is_left_are_found_with_what_is_left(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    keys = [part(topic, index) for index in range(3)]
    sizes = (100, 300, 600)
    first = block(*(batch(key, 5, size=size) for key, size in zip(keys, sizes, strict=True)))
    second = block(*(batch(key, 5, size=size) for key, size in zip(keys, sizes, strict=True)))
    await plane.log.commit_blocks([first, second])

    async def dead(live_part: float, older_than_ms: int = 0) -> list[ObjectId]:
        return ids_of(await look(plane, live_part=live_part, older_than_ms=older_than_ms))

    assert await dead(0.99) == []
    assert len(await dead(1.0)) == 2
    await plane.log.delete_records({keys[2]: Offset(5)})
    assert await dead(0.39) == []
    assert await dead(0.4) == [first.object_id]
    assert await dead(0.4, older_than_ms=MINUTE_MS) == []
    await change(database, "UPDATE objects SET committed_ms = committed_ms - 60000")
    assert await dead(0.4, older_than_ms=MINUTE_MS) == [first.object_id]
    found = await plane.pipeline.coordinates_in([first.object_id])
    assert [(row.partition, row.base_offset, row.byte_size) for row in found] == [
        (0, 0, 100),
        (1, 0, 300),
    ]
    assert found[0] == (await rows_in(plane, keys[0]))[0]
    await plane.log.delete_records({keys[0]: Offset(10), keys[1]: Offset(10), keys[2]: Offset(10)})
    assert await dead(1.0) == await plane.pipeline.coordinates_in([first.object_id]) == []


async def test_a_step_looks_at_so_many_objects_whatever_it_finds(
    plane: ControlPlane, topic: Topic
) -> None:
    ids = await write(plane, topic, 5)
    await kill(plane, topic, 1)
    assert await walk(plane, limit=2, live_part=0.5) == [ids[:1], [], []]
    assert await walk(plane, limit=2) == [ids[:2], ids[2:4], ids[4:]]
    assert await walk(plane, limit=5) == [ids, []]
    assert await walk(plane, limit=6) == [ids]
    await kill(plane, topic, 5)
    assert await walk(plane, limit=2, live_part=0.5) == [ids[:2], ids[2:4], ids[4:]]


async def test_what_is_found_has_its_size_and_the_cursor_is_the_last_that_was_looked_at(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    ids = await write(plane, topic, 3)
    await set_times(database, {each: 1_000 + index for index, each in enumerate(ids)})
    await kill(plane, topic, 1)
    step = await look(plane, live_part=0.3, limit=2)
    assert [(each.object_id, each.size_bytes) for each in step.found] == [(ids[0], 1_000)]
    assert step.after == (1_001, ids[1])


async def test_a_walk_over_nothing_ends_at_once(plane: ControlPlane, topic: Topic) -> None:
    assert await look(plane) == DeadObjects([], None)
    await write(plane, topic, 1)
    assert await look(plane, older_than_ms=MINUTE_MS) == DeadObjects([], None)


async def test_of_objects_of_the_same_time_none_is_skipped_and_none_comes_twice(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    ids = await write(plane, topic, 7)
    await set_times(database, dict(zip(ids, [5, 7, 7, 7, 7, 7, 9], strict=True)))
    tied = sorted(ids[1:6])
    for limit in range(1, 8):
        steps = await walk(plane, limit=limit)
        assert [each for step in steps for each in step] == [ids[0], *tied, ids[6]]


async def test_what_comes_behind_the_cursor_is_left_to_the_next_walk(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    ids = await write(plane, topic, 4)
    await set_times(database, {each: 1_000 * (index + 1) for index, each in enumerate(ids)})
    step = await look(plane, limit=2)
    behind, ahead = await write(plane, topic, 2)
    await set_times(database, {behind: 1_500, ahead: 3_500})
    rest = await look(plane, step.after)
    assert (ids_of(rest), rest.after) == ([ids[2], ahead, ids[3]], None)
    assert await walk(plane, limit=10) == [[ids[0], behind, ids[1], ids[2], ahead, ids[3]]]


async def test_a_walk_goes_on_after_an_object_that_is_gone_by_then(
    plane: ControlPlane, topic: Topic
) -> None:
    ids = await write(plane, topic, 4)
    step = await look(plane, limit=2)
    await plane.log.delete_records({part(topic, 0): Offset(10), part(topic, 1): Offset(10)})
    assert ids_of(await look(plane, step.after)) == ids[2:]
    assert await walk(plane, limit=10) == [ids[2:]]


async def test_objects_that_are_stuck_are_looked_at_and_left_out_for_a_while(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    ids = await write(plane, topic, 3)
    await plane.pipeline.note_stuck(ids[:2])
    assert await walk(plane, limit=2) == [[], ids[2:]]
    await change(database, "UPDATE objects SET stuck_ms = stuck_ms - 60000")
    assert await walk(plane, limit=2) == [ids[:2], ids[2:]]


async def test_rows_that_nobody_is_sent_to_are_not_worth_a_rewrite(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    for _ in range(3):
        await commit(plane, batch(key, 5))
    ids = [row.object_id for row in await rows_in(plane, key)]
    await change(database, "UPDATE partitions SET log_start = 5, block_start = 5")
    assert [row.base_offset for row in await plane.pipeline.coordinates_in(ids)] == [5, 10]
    await plane.topics.delete(topic.id)
    assert await plane.pipeline.coordinates_in(ids) == []
