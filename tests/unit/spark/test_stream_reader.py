"""Batches of a stream: where they begin and end, by a planner that only knows offsets."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
)
from tests.unit.spark.streams import ALL, FakePlanner, reader

from stratalog.control.scans.model import EARLIEST
from stratalog.ids import PartitionIndex
from stratalog.opening.keys import KeyTexts
from stratalog.opening.stores import StoreAddresses
from stratalog.opening.workers import WorkerAccess
from stratalog.scan.model import (
    ScanColumn,
)
from stratalog.spark import stream_reader
from stratalog.spark.columns import spark_schema
from stratalog.spark.errors import DataLossError, OptionError
from stratalog.spark.options import stream_options
from stratalog.spark.outage_retry import STREAM_RETRY_S
from stratalog.spark.source import StratalogSource
from stratalog.spark.stream_reader import StreamReader
from stratalog.testing import ManualClock


def test_a_stream_goes_from_its_start_to_the_end(planner: FakePlanner) -> None:
    stream = reader()
    assert stream.initialOffset() == {"t": {"0": 0}}
    first = stream.latestOffset({"t": {"0": 0}}, ALL)
    assert first == {"@start": {"t": {"0": 0}}, "t": {"0": 100}}
    assert stream.latestOffset(first, ALL) is first, "there is nothing new"
    planner.ranges["t", 0] = (0, 120)
    assert stream.latestOffset(first, ALL) == {"t": {"0": 120}}
    assert stream.reportLatestOffset() == {"t": {"0": 120}}


def test_what_latest_means_is_asked_once(planner: FakePlanner) -> None:
    """Spark asks again when it plans the first batch, and records have come meanwhile."""
    stream = reader(startingOffsets="latest")
    start = stream.initialOffset()
    planner.ranges["t", 0] = (0, 107)
    end = stream.latestOffset(start, ALL)
    planner.ranges["t", 0] = (0, 200)
    stream.partitions(stream.initialOffset(), end)
    [request] = planner.planned
    assert request.starting.by_partition == {("t", 0): 100}
    assert request.ending.by_partition == {("t", 0): 107}


@pytest.mark.parametrize("starting", ["latest", "earliest"])
def test_a_first_batch_that_is_repeated_begins_where_it_began(
    starting: str, planner: FakePlanner
) -> None:
    stream = reader(startingOffsets=starting)
    start = stream.initialOffset()
    planner.ranges["t", 0] = (0, 107)
    end = stream.latestOffset(start, ALL)
    stream.partitions(start, end)
    planner.ranges = {("t", 0): (15, 200), ("t", 1): (0, 5)}
    restarted = reader(startingOffsets=starting)
    assert restarted.initialOffset() != start
    restarted.partitions(restarted.initialOffset(), json.loads(json.dumps(end)))
    once, again = planner.planned
    assert again.starting == once.starting
    assert again.ending == once.ending
    assert restarted.latestOffset(end, ALL) == {"t": {"0": 200, "1": 5}}


def test_a_first_batch_without_records_is_noted_and_read_as_empty(planner: FakePlanner) -> None:
    stream = reader(startingOffsets="latest")
    end = stream.latestOffset(stream.initialOffset(), ALL)
    assert end == {"@start": {"t": {"0": 100}}, "t": {"0": 100}}
    planner.ranges["t", 0] = (0, 200)
    restarted = reader(startingOffsets="latest")
    for again in (stream, restarted):
        assert again.partitions(again.initialOffset(), end) == []
        assert again.partitions(end, end) == []
    assert planner.planned == []


def test_a_first_batch_that_began_before_there_was_a_topic_is_repeated_from_there(
    planner: FakePlanner,
) -> None:
    ranges, planner.ranges = planner.ranges, {}
    stream = reader(subscribePattern="t", startingOffsets="latest")
    start = stream.initialOffset()
    planner.ranges = ranges
    end = stream.latestOffset(start, ALL)
    assert end == {"@start": {}, "t": {"0": 100}}
    restarted = reader(subscribePattern="t", startingOffsets="latest")
    restarted.partitions(restarted.initialOffset(), end)
    [request] = planner.planned
    assert request.starting.by_partition == {("t", 0): 0}


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "5"}, ReadMaxRows(5)),
        ({"minOffsetsPerTrigger": "3"}, ReadMinRows(3)),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "3"}, ReadMaxRows(5)),
    ],
)
def test_options_become_the_limit_that_spark_asks_with(
    options: dict[str, str], limit: ReadLimit, planner: FakePlanner
) -> None:
    assert reader(**options).getDefaultReadLimit() == limit


def test_the_limit_that_is_given_counts_and_the_option_does_not(planner: FakePlanner) -> None:
    stream = reader(maxOffsetsPerTrigger="5")
    assert stream.latestOffset({"t": {"0": 10}}, ReadMaxRows(7)) == {"t": {"0": 17}}
    assert stream.latestOffset({"t": {"0": 10}}, ALL) == {"t": {"0": 100}}
    assert stream.reportLatestOffset() == {"t": {"0": 100}}


async def test_too_little_waits_until_there_is_enough_or_the_delay_is_over(
    planner: FakePlanner,
) -> None:
    clock = ManualClock()
    stream = reader(clock, minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    limit, start = ReadMinRows(10), {"t": {"0": 91}}
    assert stream.latestOffset(start, limit) == {"t": {"0": 100}}, "nothing was read yet"
    assert stream.latestOffset(start, limit) == start
    planner.ranges["t", 0] = (0, 101)
    assert stream.latestOffset(start, limit) == {"t": {"0": 101}}
    planner.ranges["t", 0] = (0, 102)
    start = {"t": {"0": 101}}
    await clock.advance(59.9)
    assert stream.latestOffset(start, limit) == start
    await clock.advance(0.1)
    assert stream.latestOffset(start, limit) == {"t": {"0": 102}}


def test_a_least_and_a_most_are_both_kept_to(planner: FakePlanner) -> None:
    stream = reader(ManualClock(), minOffsetsPerTrigger="10", maxOffsetsPerTrigger="20")
    limit = stream.getDefaultReadLimit()
    assert stream.latestOffset({"t": {"0": 0}}, limit) == {"t": {"0": 20}}
    assert stream.latestOffset({"t": {"0": 95}}, limit) == {"t": {"0": 95}}


def test_available_now_ends_where_it_was_and_waits_for_nothing(planner: FakePlanner) -> None:
    stream = reader(ManualClock(), minOffsetsPerTrigger="1000")
    stream.prepareForTriggerAvailableNow()
    planner.ranges["t", 0] = (0, 150)
    for _ in range(2):
        assert stream.latestOffset({"t": {"0": 0}}, ReadMinRows(1000)) == {"t": {"0": 100}}
    assert stream.latestOffset({"t": {"0": 100}}, ReadMinRows(1000)) == {"t": {"0": 100}}
    assert stream.reportLatestOffset() == {"t": {"0": 150}}, "the lag is told all the same"


def test_available_now_reads_nothing_if_it_begins_behind_its_end(planner: FakePlanner) -> None:
    """Records, and partitions, may come between the two looks."""
    stream = reader(startingOffsets="latest")
    stream.prepareForTriggerAvailableNow()
    planner.ranges = {("t", 0): (0, 107), ("t", 1): (0, 3)}
    start = stream.initialOffset()
    planner.ranges = {("t", 0): (0, 120), ("t", 1): (0, 9)}
    end = stream.latestOffset(start, ALL)
    assert end == {"@start": start, **start} == {"@start": start, "t": {"0": 107, "1": 3}}
    assert stream.partitions(start, end) == []
    assert stream.latestOffset(end, ALL) is end
    planner.ranges["t", 0] = (0, 50)
    with pytest.raises(DataLossError, match="it ends at 50, and 107 was to be read next"):
        stream.latestOffset(end, ALL)


def test_new_partitions_begin_at_their_beginning(planner: FakePlanner) -> None:
    planner.ranges["t", 1] = (0, 60)
    stream = reader()
    assert stream.latestOffset({"t": {"0": 100}}, ReadMaxRows(5)) == {"t": {"0": 100, "1": 5}}
    stream.partitions({"t": {"0": 100}}, {"t": {"0": 100, "1": 5}})
    [request] = planner.planned
    assert request.assign == {"t": [PartitionIndex(1)]}
    assert request.starting.by_partition == {("t", 1): 0}
    assert request.ending.by_partition == {("t", 1): 5}


def test_new_partitions_that_have_lost_their_beginning_are_a_loss(planner: FakePlanner) -> None:
    planner.ranges["t", 1] = (40, 60)
    with pytest.raises(DataLossError, match="new to this query and begins at 40, not at 0"):
        reader().latestOffset({"t": {"0": 100}}, ALL)
    lenient = reader(failOnDataLoss="false")
    start = {"t": {"0": 100}}
    assert lenient.latestOffset(start, ReadMaxRows(5)) == {"t": {"0": 100, "1": 45}}
    lenient.partitions(start, {"t": {"0": 100, "1": 45}})
    [request] = planner.planned
    assert request.starting.by_partition == {("t", 1): EARLIEST}


def test_a_pattern_takes_what_it_matches_wholly(planner: FakePlanner) -> None:
    planner.ranges = {(topic, 0): (0, 5) for topic in ("ab", "abc", "b")}
    stream = reader(subscribePattern="a.")
    assert stream.latestOffset({}, ALL) == {"ab": {"0": 5}}


def test_assigned_partitions_are_the_only_ones(planner: FakePlanner) -> None:
    planner.ranges = {("t", partition): (0, 5) for partition in range(3)}
    given = {"assign": '{"t": [1]}', "startingOffsets": "earliest"}
    stream = StreamReader(stream_options(given), spark_schema([ScanColumn.OFFSET]))
    assert stream.latestOffset({}, ALL) == {"t": {"1": 5}}


LOST: list[Any] = [
    ({}, "partition 0 of 't': it is gone, and 50 was to be read next", {}),
    ({("t", 0): (0, 49)}, "it ends at 49, and 50 was to be read next", {"t": {"0": 49}}),
    ({("t", 0): (51, 60)}, "it begins at 51, and 50 was to be read next", {"t": {"0": 56}}),
]


@pytest.mark.parametrize(("ranges", "told", "end"), LOST)
def test_a_loss_is_an_error_or_is_passed_over(
    ranges: dict[tuple[str, int], tuple[int, int]],
    told: str,
    end: dict[str, dict[str, int]],
    planner: FakePlanner,
) -> None:
    planner.ranges = ranges
    with pytest.raises(DataLossError) as caught:
        reader().latestOffset({"t": {"0": 50}}, ALL)
    assert told in str(caught.value)
    lenient = reader(failOnDataLoss="false")
    most = ReadMaxRows(5) if ranges.get(("t", 0)) == (51, 60) else ALL
    assert lenient.latestOffset({"t": {"0": 50}}, most) == end


@pytest.mark.parametrize("ranges", [{("t", 0): (50, 60)}, {("t", 0): (0, 50)}])
def test_just_enough_is_no_loss(
    ranges: dict[tuple[str, int], tuple[int, int]], planner: FakePlanner
) -> None:
    planner.ranges = ranges
    end = {"t": {"0": ranges["t", 0][1]}}
    assert reader().latestOffset({"t": {"0": 50}}, ALL) == end


def test_a_batch_is_planned_from_its_offsets_alone(planner: FakePlanner) -> None:
    planner.ranges |= {("t", 1): (0, 500), ("t", 2): (0, 7)}
    stream = reader(minPartitions="4", splitBytes="1MiB")
    end = {"t": {"0": 20, "1": 9, "2": 7}}
    assert stream.partitions({"t": {"0": 10, "1": 9, "2": 3}}, end) == []
    [request] = planner.planned
    assert request.assign == {"t": [PartitionIndex(0), PartitionIndex(2)]}
    assert request.starting.by_partition == {("t", 0): 10, ("t", 2): 3}
    assert request.ending.by_partition == {("t", 0): 20, ("t", 2): 7}
    assert (request.min_splits, request.split_bytes) == (4, 2**20)
    assert list(request.columns) == [ScanColumn.OFFSET]


def test_an_empty_batch_is_not_planned(planner: FakePlanner) -> None:
    assert reader().partitions({"t": {"0": 10}}, {"t": {"0": 10}}) == []
    assert planner.planned == []


def test_a_batch_ends_the_leases_of_those_before_it(planner: FakePlanner) -> None:
    stream = reader()
    stream.partitions({"t": {"0": 0}}, {"t": {"0": 10}})
    stream.partitions({"t": {"0": 0}}, {"t": {"0": 10}})
    assert planner.released == []
    stream.partitions({"t": {"0": 10}}, {"t": {"0": 20}})
    assert planner.released == planner.taken[:2]
    stream.partitions({"t": {"0": 20}}, {"t": {"0": 30}})
    assert planner.released == planner.taken[:3]


def test_a_stream_that_is_stopped_ends_the_leases_of_its_last_batch(planner: FakePlanner) -> None:
    stream = reader()
    stream.stop()
    for _ in range(2):
        stream.partitions({"t": {"0": 0}}, {"t": {"0": 10}})
    stream.stop()
    assert planner.released == planner.taken
    stream.stop()
    assert len(planner.released) == 2


def test_what_went_between_two_calls_is_left_out_if_losses_may_be(planner: FakePlanner) -> None:
    planner.ranges = {("t", 0): (0, 15)}
    end = {"t": {"0": 20}, "u": {"0": 5}}
    reader(subscribePattern="t|u", failOnDataLoss="false").partitions({"t": {"0": 10}}, end)
    [request] = planner.planned
    assert request.ending.by_partition == {("t", 0): 15}
    assert not request.fail_on_data_loss


def test_a_mistake_is_told_at_once_and_a_query_that_runs_is_patient(planner: FakePlanner) -> None:
    stream = reader()
    start = stream.initialOffset()
    assert planner.patience == [0]
    stream.prepareForTriggerAvailableNow()
    stream.partitions(start, stream.latestOffset(start, ALL))
    assert min(planner.patience[1:]) == STREAM_RETRY_S


def test_a_reader_shows_no_secret_when_it_is_printed(
    planner: FakePlanner, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = WorkerAccess(
        stores=StoreAddresses(objects_url="s3://b/", object_options={"k": "hush"}),
        keys=KeyTexts(private={"k": "hush"}),
    )
    monkeypatch.setattr(stream_reader, "worker_access_of", lambda options: place)
    stream = reader(config=str(Path("x.toml")))
    assert "hush" not in repr(stream) + repr(vars(stream))


def test_a_reader_that_cannot_be_made_says_why_when_it_is_asked() -> None:
    """Also after a restart, which begins with the batch that was planned last."""
    source = StratalogSource({"topic": "t", "maxOffsetsPerTrigger": "none"})
    reader = source.streamReader(spark_schema([ScanColumn.OFFSET]))
    for ask in (
        reader.initialOffset,
        partial(reader.latestOffset, {}, ALL),
        partial(reader.partitions, {}, {}),
    ):
        with pytest.raises(OptionError, match="maxOffsetsPerTrigger"):
            ask()
    reader.stop()
