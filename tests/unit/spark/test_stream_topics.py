"""Streams of topics that are deleted, or replaced by others of the same name."""

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.streaming.datasource import (
    ReadMaxRows,
    ReadMinRows,
)
from tests.unit.spark.streams import ALL, FakePlanner, reader

from stratalog.control.scans.model import EARLIEST
from stratalog.ids import PartitionIndex, TopicId
from stratalog.scan.errors import TopicNotFoundError
from stratalog.spark.errors import DataLossError
from stratalog.testing import ManualClock

OLD, NEW = TopicId(UUID(int=1)), TopicId(UUID(int=2))


def noted(topic_id: TopicId, offset: int) -> dict[str, Any]:
    return {"@ids": {"t": str(topic_id)}, "t": {"0": offset}}


def test_offsets_say_whose_they_are(planner: FakePlanner) -> None:
    planner.topic_ids = {"t": OLD, "not read": NEW}
    stream = reader()
    start = stream.initialOffset()
    assert start == noted(OLD, 0)
    first = stream.latestOffset(start, ALL)
    assert first == {"@start": start, **noted(OLD, 100)}
    assert stream.latestOffset(first, ALL) is first, "there is nothing new"
    planner.ranges["t", 0] = (0, 120)
    second = stream.latestOffset(first, ALL)
    assert second == noted(OLD, 120)
    stream.partitions(first, second)
    [request] = planner.planned
    assert request.topic_ids == {"t": OLD}
    assert stream.reportLatestOffset() == {"t": {"0": 120}}


@pytest.mark.parametrize("end", [50, 100, 150])
def test_a_topic_that_was_made_anew_is_a_loss_however_long_it_is(
    end: int, planner: FakePlanner
) -> None:
    planner.topic_ids, planner.ranges = {"t": NEW}, {("t", 0): (0, end)}
    start = noted(OLD, 100)
    with pytest.raises(DataLossError) as caught:
        reader().latestOffset(start, ALL)
    assert "topic 't' was deleted and created again" in str(caught.value)
    assert 'set the option "failOnDataLoss" to false' in str(caught.value)
    lenient = reader(failOnDataLoss="false")
    assert lenient.latestOffset(start, ReadMaxRows(5)) == noted(NEW, 5)
    found = lenient.latestOffset(start, ALL)
    assert found == noted(NEW, end)
    assert lenient.latestOffset(found, ALL) is found
    lenient.partitions(start, found)
    [request] = planner.planned
    assert request.starting.by_partition == {("t", 0): EARLIEST}
    assert request.ending.by_partition == {("t", 0): end}
    with pytest.raises(DataLossError, match="'t' was deleted and created again"):
        reader().partitions(start, found)


def test_too_little_of_a_topic_that_was_made_anew_waits_as_well(planner: FakePlanner) -> None:
    stream = reader(ManualClock(), minOffsetsPerTrigger="10", failOnDataLoss="false")
    planner.topic_ids = {"t": OLD}
    start = stream.latestOffset(noted(OLD, 0), ReadMinRows(10))
    planner.topic_ids, planner.ranges = {"t": NEW}, {("t", 0): (0, 9)}
    assert stream.latestOffset(start, ReadMinRows(10)) is start
    planner.ranges = {("t", 0): (0, 10)}
    assert stream.latestOffset(start, ReadMinRows(10)) == noted(NEW, 10)


def test_a_checkpoint_without_ids_goes_on_and_has_them_with_its_next_batch(
    planner: FakePlanner,
) -> None:
    """Spark makes a batch of every new text, also of one that tells of nothing to read."""
    planner.topic_ids = {"t": OLD}
    stream = reader()
    for start in ({"t": {"0": 100}}, {"@start": {"t": {"0": 40}}, "t": {"0": 100}}):
        planner.ranges["t", 0] = (0, 100)
        assert stream.latestOffset(start, ALL) is start
        planner.ranges["t", 0] = (0, 120)
        assert stream.latestOffset(start, ALL) == noted(OLD, 120)
    for end in (noted(OLD, 120), {"t": {"0": 120}}):
        stream.partitions({"t": {"0": 100}}, end)
    assert [each.starting.by_partition for each in planner.planned] == [{("t", 0): 100}] * 2


def test_a_first_batch_that_is_repeated_knows_whose_start_it_has(planner: FakePlanner) -> None:
    planner.topic_ids = {"t": OLD}
    stream = reader(failOnDataLoss="false")
    start = stream.initialOffset()
    planner.topic_ids = {"t": NEW}
    end = stream.latestOffset(start, ALL)
    assert end == {"@start": noted(OLD, 0), **noted(NEW, 100)}
    restarted = reader(failOnDataLoss="false")
    restarted.partitions(restarted.initialOffset(), end)
    [request] = planner.planned
    assert request.starting.by_partition == {("t", 0): EARLIEST}


def test_a_topic_that_is_made_anew_after_its_batch_was_decided_on_is_not_read_in_it(
    planner: FakePlanner,
) -> None:
    planner.topic_ids = {"t": NEW, "u": OLD}
    planner.ranges["u", 0] = (0, 100)
    start, end = ({**noted(OLD, at), "u": {"0": at}} for at in (10, 20))
    with pytest.raises(DataLossError) as caught:
        reader(subscribePattern="t|u").partitions(start, end)
    assert "topic 't' was deleted and created again" in str(caught.value)
    assert 'set the option "failOnDataLoss" to false' in str(caught.value)
    end["@ids"] |= {"u": str(OLD)}
    reader(subscribePattern="t|u", failOnDataLoss="false").partitions(start, end)
    [request] = planner.planned
    assert request.assign == {"u": [PartitionIndex(0)]}


def delete(planner: FakePlanner) -> None:
    planner.ranges.pop(("t", 0), None)


def make_anew(planner: FakePlanner) -> None:
    planner.topic_ids["t"] = NEW


@pytest.mark.parametrize("happen", [delete, make_anew])
def test_a_topic_that_goes_while_its_batch_is_planned_is_left_out(
    happen: Callable[[FakePlanner], None], planner: FakePlanner
) -> None:
    planner.topic_ids = {"t": OLD, "u": OLD}
    planner.ranges["u", 0] = (0, 100)
    planner.before_plan = partial(happen, planner)
    ids = {"t": str(OLD), "u": str(OLD)}
    start, end = ({"@ids": ids, "t": {"0": at}, "u": {"0": at}} for at in (10, 20))
    reader(subscribePattern="t|u", failOnDataLoss="false").partitions(start, end)
    [request] = planner.planned
    assert request.assign == {"u": [PartitionIndex(0)]}


@pytest.mark.parametrize(
    ("happen", "told"), [(delete, TopicNotFoundError), (make_anew, DataLossError)]
)
def test_a_topic_that_goes_while_its_batch_is_planned_is_told_if_losses_are(
    happen: Callable[[FakePlanner], None], told: type[Exception], planner: FakePlanner
) -> None:
    planner.topic_ids = {"t": OLD}
    planner.before_plan = partial(happen, planner)
    with pytest.raises(told):
        reader().partitions(noted(OLD, 10), noted(OLD, 20))
