"""Leader epochs: where each ended, as clients that look for a truncated log ask."""

import pytest
from tests.contract.control.building import batch, change, commit, part

from stratalog.control.log.model import EpochQuery
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database
from stratalog.control.topics.model import Topic
from stratalog.ids import NO_OFFSET, TopicPartition


async def ends(
    plane: ControlPlane, key: TopicPartition, *epochs: int
) -> list[tuple[int, ...] | None]:
    found = await plane.log.epoch_ends([EpochQuery(partition=key, epoch=epoch) for epoch in epochs])
    return [None if end is None else tuple(end) for end in found]


async def begin_epochs(database: Database, key: TopicPartition, *starts: tuple[int, int]) -> None:
    """Begin an epoch as a migration does: no operation begins epochs yet."""
    await change(database, "DELETE FROM epochs WHERE partition = $1", key.partition)
    for epoch, start in starts:
        await change(
            database,
            "INSERT INTO epochs (topic_id, partition, leader_epoch, start_offset)"
            " VALUES ($1, $2, $3, $4)",
            *key,
            epoch,
            start,
        )
    await change(
        database,
        "UPDATE heads SET leader_epoch = $1 WHERE partition = $2",
        starts[-1][0],
        key.partition,
    )


async def test_the_first_epoch_ends_where_the_log_does(plane: ControlPlane, topic: Topic) -> None:
    assert await ends(plane, part(topic), 0) == [(0, 0, 0)]
    await commit(plane, batch(part(topic), 5))
    assert await ends(plane, part(topic), 0) == [(0, 0, 5)]


@pytest.mark.parametrize("asked", [-1, 1, 99])
async def test_an_epoch_that_never_was_has_no_end(
    plane: ControlPlane, topic: Topic, asked: int
) -> None:
    await commit(plane, batch(part(topic), 5))
    assert await ends(plane, part(topic), asked) == [(0, -1, -1)]


async def test_an_epoch_ends_where_the_next_one_begins(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await commit(plane, batch(key, 50))
    await begin_epochs(database, key, (2, 0), (5, 20), (6, 30))
    assert await ends(plane, key, 2, 3, 4, 5, 6, 7) == [
        (6, 2, 20),
        (6, 2, 20),
        (6, 2, 20),
        (6, 5, 30),
        (6, 6, 50),
        (6, -1, -1),
    ]


async def test_an_epoch_before_the_first_ends_where_the_first_begins(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await commit(plane, batch(key, 50))
    await begin_epochs(database, key, (2, 10), (5, 20))
    assert await ends(plane, key, 0, 1) == [(5, 0, 10), (5, 1, 10)]


async def test_epochs_outlive_their_records(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await commit(plane, batch(key, 50))
    await begin_epochs(database, key, (0, 0), (1, 20))
    await plane.log.delete_records({key: NO_OFFSET})
    assert await ends(plane, key, 0, 1) == [(1, 0, 20), (1, 1, 50)]


async def test_partitions_are_told_apart_and_unknown_ones_have_no_answer(
    plane: ControlPlane, topic: Topic
) -> None:
    await commit(plane, batch(part(topic, 1), 3))
    queries = [EpochQuery(partition=part(topic, index), epoch=0) for index in (1, 9, 0)]
    found = await plane.log.epoch_ends(queries)
    assert [end and end.end_offset for end in found] == [3, None, 0]
    await plane.topics.delete(topic.id)
    assert await plane.log.epoch_ends(queries) == [None, None, None]
