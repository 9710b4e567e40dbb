"""Topics: created, found, changed, hidden and purged."""

import asyncio

import pytest
from tests.contract.control.building import batch, block, commit, part, rows_of, state_of

from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database
from stratalog.control.topics.errors import PartitionCountError, TopicExistsError, UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.ids import new_topic_id


async def test_a_created_topic_is_found_by_name_and_id(plane: ControlPlane) -> None:
    made = await plane.topics.create("b", partition_count=2, configs={"retention.ms": "5"})
    await plane.topics.create("a", partition_count=1, configs={})
    await plane.topics.create("Z", partition_count=1, configs={})
    assert [topic.name for topic in await plane.topics.all()] == ["Z", "a", "b"]
    assert await plane.topics.named(["b", "nothing"]) == [made]
    assert await plane.topics.with_ids([made.id, new_topic_id()]) == [made]
    assert await plane.topics.named([]) == []
    assert made.configs == {"retention.ms": "5"}
    assert made.created_ms > 0


async def test_a_name_is_taken_once(plane: ControlPlane, other: ControlPlane) -> None:
    results = await asyncio.gather(
        *(
            control.topics.create("same", partition_count=1, configs={})
            for control in (plane, other, plane, other)
        ),
        return_exceptions=True,
    )
    assert sum(isinstance(each, TopicExistsError) for each in results) == 3
    assert len(await plane.topics.all()) == 1


@pytest.mark.parametrize("count", [0, -1])
async def test_a_topic_needs_a_partition(plane: ControlPlane, count: int) -> None:
    with pytest.raises(PartitionCountError):
        await plane.topics.create("none", partition_count=count, configs={})


async def test_partitions_are_added_and_never_taken_away(plane: ControlPlane, topic: Topic) -> None:
    await commit(plane, batch(part(topic), 2))
    grown = await plane.topics.add_partitions(topic.id, partition_count=5)
    assert grown.partition_count == 5
    states = await plane.log.topic_partitions(topic.id)
    assert [state.partition for state in states] == [0, 1, 2, 3, 4]
    assert [state.high_watermark for state in states] == [2, 0, 0, 0, 0]
    for count in (5, 4):
        with pytest.raises(PartitionCountError):
            await plane.topics.add_partitions(topic.id, partition_count=count)
    with pytest.raises(UnknownTopicError):
        await plane.topics.add_partitions(new_topic_id(), partition_count=2)


async def test_configs_are_set_and_unset(plane: ControlPlane, topic: Topic) -> None:
    await plane.topics.set_configs(topic.id, {"a": "1", "b": "2"})
    changed = await plane.topics.set_configs(topic.id, {"a": None, "b": "3", "c": None})
    assert changed.configs == {"b": "3"}
    assert (await plane.topics.named(["events"]))[0].configs == {"b": "3"}
    with pytest.raises(UnknownTopicError):
        await plane.topics.set_configs(new_topic_id(), {"a": "1"})


async def test_concurrent_config_changes_are_all_kept(
    plane: ControlPlane, other: ControlPlane, topic: Topic
) -> None:
    await asyncio.gather(
        *(
            control.topics.set_configs(topic.id, {f"{name}{i}": "x"})
            for i in range(5)
            for name, control in (("a", plane), ("b", other))
        )
    )
    [found] = await plane.topics.all()
    assert len(found.configs) == 10


async def test_states_of_unknown_partitions_are_left_out(plane: ControlPlane, topic: Topic) -> None:
    wanted = [part(topic, 2), part(topic, 3), part(topic, 2)]
    assert list(await plane.log.partitions(wanted)) == [part(topic, 2)]
    assert await plane.log.high_watermarks(wanted) == {part(topic, 2): 0}
    assert await plane.log.partitions([]) == {}


async def test_a_deleted_topic_is_hidden_and_its_name_is_free(
    plane: ControlPlane, topic: Topic
) -> None:
    await commit(plane, batch(part(topic)))
    await plane.topics.delete(topic.id)
    assert await plane.topics.all() == []
    assert await plane.topics.named(["events"]) == []
    assert await plane.topics.with_ids([topic.id]) == []
    assert await plane.log.partitions([part(topic)]) == {}
    assert await plane.log.high_watermarks([part(topic)]) == {}
    assert await plane.log.topic_partitions(topic.id) == []
    with pytest.raises(UnknownTopicError):
        await plane.topics.delete(topic.id)
    again = await plane.topics.create("events", partition_count=1, configs={})
    assert (await state_of(plane, part(again))).high_watermark == 0


async def test_purging_takes_a_deleted_topic_away_in_chunks(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    kept = await plane.topics.create("kept", partition_count=1, configs={})
    shared = block(batch(part(topic), producer=1, sequence=0), batch(part(kept)))
    await plane.log.commit_blocks([shared])
    own = block(*(batch(part(topic, i), gap=1) for i in (0, 0, 1, 1)))
    await plane.log.commit_blocks([own])
    await plane.topics.delete(topic.id)
    assert [await plane.topics.purge_deleted(window_ms=0, max_rows=2) for _ in range(4)] == [
        2,
        2,
        1,
        0,
    ]
    marked = await plane.objects.marked(grace_ms=0, limit=10)
    assert [each.object_id for each in marked] == [own.object_id]
    assert await rows_of(plane, part(kept)) == [(0, 0)]
    for table in ("topics", "partitions", "heads", "epochs", "producers", "batches"):
        rows = await database.read(
            lambda connection, name=table: connection.fetch(  # type: ignore[misc]
                f"SELECT 1 FROM {name} WHERE topic_id = $1", topic.id
            )
        )
        assert rows == [], table
