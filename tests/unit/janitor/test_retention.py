import logging
from dataclasses import replace

import pytest
from tests.unit.janitor.fakes import FakeControl, topic

from stratalog.control.errors import ControlUnavailableError
from stratalog.control.topics.model import Topic
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.janitor.retention import Retention, enforce_retention
from stratalog.topic.retention import retention_by

ONE, TWO = topic(1), topic(2, partition_count=2)


def week(_: Topic) -> Retention:
    return Retention(ms=7, bytes=None)


def at(topic: Topic, partition: int) -> TopicPartition:
    return TopicPartition(topic.id, PartitionIndex(partition))


async def test_rows_are_removed_in_chunks_until_none_are_left() -> None:
    control = FakeControl([ONE], expired={at(ONE, 0): 7})
    assert await enforce_retention(control, week, chunk_rows=3) == 7
    assert control.calls == ["topics.all", *["retain 1-0 7 None"] * 3]


async def test_a_chunk_that_was_just_full_is_followed_by_another() -> None:
    control = FakeControl([ONE], expired={at(ONE, 0): 3})
    assert await enforce_retention(control, week, chunk_rows=3) == 3
    assert control.calls.count("retain 1-0 7 None") == 2


async def test_each_topic_is_held_to_its_own_limits() -> None:
    limits = {"topic-1": Retention(ms=5, bytes=None), "topic-2": Retention(ms=None, bytes=9)}
    control = FakeControl([ONE, TWO])
    await enforce_retention(control, lambda topic: limits[topic.name], chunk_rows=3)
    assert control.calls[1:] == ["retain 1-0 5 None", "retain 2-0 None 9", "retain 2-1 None 9"]


async def test_a_partition_that_was_never_written_is_not_asked_about() -> None:
    control = FakeControl([TWO], unwritten={at(TWO, 0)})
    await enforce_retention(control, week, chunk_rows=3)
    assert control.calls == ["topics.all", "retain 2-1 7 None"]


async def test_a_topic_that_keeps_everything_loses_only_what_lies_below_its_start() -> None:
    control = FakeControl([TWO], trimmed={at(TWO, 1)}, expired={at(TWO, 1): 2})
    forever = Retention(ms=None, bytes=None)
    assert await enforce_retention(control, lambda _: forever, chunk_rows=3) == 2
    assert control.calls == ["topics.all", "retain 2-1 None None"]


async def test_an_emptied_partition_is_asked_about_for_what_lies_below_its_start() -> None:
    control = FakeControl([ONE], trimmed={at(ONE, 0)}, expired={at(ONE, 0): 2})
    assert await enforce_retention(control, week, chunk_rows=3) == 2


async def test_a_topic_deleted_meanwhile_holds_nobody_up() -> None:
    control = FakeControl([ONE, TWO], expired={at(TWO, 1): 1}, gone={ONE.id})
    assert await enforce_retention(control, week, chunk_rows=3) == 1


async def test_a_topic_with_unreadable_configs_is_kept_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = replace(ONE, configs={"retention.ms": "soon"})
    control = FakeControl([broken, TWO], expired={at(ONE, 0): 1, at(TWO, 0): 1})
    with caplog.at_level(logging.WARNING):
        assert await enforce_retention(control, retention_by({}), chunk_rows=3) == 1
    assert "topic-1" in caplog.text
    assert "soon" in caplog.text


async def test_a_partition_with_broken_boundaries_does_not_delay_the_others() -> None:
    breach = AssertionError("remote_end 11 is after block_start 10")
    expired = {at(ONE, 0): 1, at(TWO, 0): 1, at(TWO, 1): 1}
    control = FakeControl([ONE, TWO], expired=expired, failing={"retain 2-0 7 None": breach})
    with pytest.raises(AssertionError, match="remote_end 11"):
        await enforce_retention(control, week, chunk_rows=3)
    assert control.expired == {at(ONE, 0): 0, at(TWO, 0): 1, at(TWO, 1): 0}


async def test_an_unavailable_control_plane_ends_the_run() -> None:
    control = FakeControl([ONE], failing={"topics.all": ControlUnavailableError("down")})
    with pytest.raises(ControlUnavailableError):
        await enforce_retention(control, week, chunk_rows=3)
