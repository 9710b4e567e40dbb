"""The options of a reader, and the messages about wrong ones."""

import pytest

from stratalog.control.scans.model import EARLIEST, LATEST
from stratalog.ids import Offset, PartitionIndex
from stratalog.opening.location import ClusterLocation
from stratalog.scan.model import AtTime, Positions, RowFilter, ScanColumn
from stratalog.spark.errors import OptionError
from stratalog.spark.option_table import OPTIONS
from stratalog.spark.options import (
    Admission,
    ReadOptions,
    Selection,
    batch_options,
    chosen_columns,
    stream_options,
)

ASSIGNED = {"a": [PartitionIndex(0), PartitionIndex(1)], "b": [PartitionIndex(2)]}


def batch(**given: str) -> ReadOptions:
    return batch_options({"topic": "orders", **given})


def stream(**given: str) -> ReadOptions:
    return stream_options({"topic": "orders", **given})


def test_a_topic_is_all_that_a_batch_needs() -> None:
    assert batch() == ReadOptions(
        selection=Selection(topics=("orders",)),
        starting=Positions(default=EARLIEST),
        ending=Positions(default=LATEST),
    )


def test_a_stream_begins_with_what_comes_unless_told_otherwise() -> None:
    assert stream().starting == Positions(default=LATEST)
    assert stream(startingOffsets="earliest").starting == Positions(default=EARLIEST)


@pytest.mark.parametrize(
    ("option", "value", "selection"),
    [
        ("topic", " a.b ", Selection(topics=("a.b",))),
        ("subscribe", "a, b,a,", Selection(topics=("a", "b"))),
        ("subscribePattern", "a|b.*", Selection(pattern="a|b.*")),
        ("assign", '{"a": [1, 0, 1], "b": [2]}', Selection(assign=ASSIGNED)),
    ],
)
def test_topics_are_selected_in_four_ways(option: str, value: str, selection: Selection) -> None:
    assert batch_options({option: value}).selection == selection


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "no topic is named"),
        ({"topic": "a", "assign": "{}"}, "topic and assign exclude each other"),
        ({"topic": " "}, "topic: is empty"),
        ({"subscribePattern": "(a"}, "subscribePattern: '(a' is no regular expression"),
        ({"assign": "{}"}, "assign: must be a JSON object"),
        ({"assign": '{"a": [-1]}'}, 'assign: "a" has no partition -1'),
        ({"assign": '{"a": {"0": 1}}'}, 'assign: "a" must be a list of partitions'),
        ({"assign": '{"a": [true]}'}, 'assign: "a" has no partition true'),
    ],
)
def test_a_wrong_selection_is_told(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError) as caught:
        batch_options(given)
    assert told in str(caught.value)


def test_names_of_options_may_be_in_any_case() -> None:
    assert batch_options({"TOPIC": "a", "minpartitions": "3"}).min_partitions == 3


@pytest.mark.parametrize(
    ("name", "near"),
    [("startingOffset", "startingOffsets"), ("topics", "topic"), ("splitbyte", "splitBytes")],
)
def test_an_unknown_option_is_told_with_near_names(name: str, near: str) -> None:
    with pytest.raises(OptionError, match=f"^{name}: there is no such option; did you.* {near}"):
        batch(**{name: "1"})


def test_an_option_like_no_other_is_told_with_all_names() -> None:
    with pytest.raises(OptionError) as caught:
        batch(zzz="1")
    assert all(option in str(caught.value) for option in OPTIONS)


def test_a_path_is_no_topic() -> None:
    with pytest.raises(OptionError, match=r"load\(\) takes no path: name the topic by"):
        batch_options({"path": "orders"})


def test_what_only_a_kafka_consumer_needs_is_ignored() -> None:
    given = {
        "kafka.bootstrap.servers": "a:9092",
        "kafka.sasl.jaas.config": "x",
        "groupIdPrefix": "g",
        "kafkaConsumer.pollTimeoutMs": "1",
        "fetchOffset.numRetries": "1",
        "fetchOffset.retryIntervalMs": "1",
    }
    assert batch(**given) == batch()


def test_the_isolation_level_of_a_consumer_is_kept_to() -> None:
    assert batch(**{"kafka.isolation.level": "read_committed"}).committed
    assert not batch(**{"kafka.isolation.level": "read_uncommitted"}).committed
    with pytest.raises(OptionError, match=r"^kafka\.isolation\.level: must be read_committed or"):
        batch(**{"kafka.isolation.level": "none"})


def test_offsets_are_given_per_partition() -> None:
    options = batch(
        startingOffsets='{"orders": {"0": 23, "1": -2}}', endingOffsets='{"orders": {"0": -1}}'
    )
    assert options.starting == Positions(
        default=EARLIEST, by_partition={("orders", 0): Offset(23), ("orders", 1): EARLIEST}
    )
    assert options.ending == Positions(default=LATEST, by_partition={("orders", 0): LATEST})


def test_partitions_that_a_stream_does_not_name_are_read_from_their_beginning() -> None:
    options = stream(startingOffsets='{"orders": {"1": -1}}')
    assert options.starting == Positions(default=EARLIEST, by_partition={("orders", 1): LATEST})


def test_times_go_before_offsets_and_one_time_before_many() -> None:
    given = {"startingOffsets": "earliest", "endingOffsets": "latest"}
    given["startingOffsetsByTimestamp"] = '{"orders": {"1": 7}}'
    given["endingOffsetsByTimestamp"] = '{"orders": {"1": 9}}'
    options = batch(**given)
    assert options.starting == Positions(
        default=EARLIEST, by_partition={("orders", 1): AtTime(7, or_latest=False)}
    )
    assert options.ending == Positions(default=LATEST, by_partition={("orders", 1): AtTime(9)})
    options = batch(**given, startingTimestamp="3", endingTimestamp="5")
    assert options.starting == Positions(default=AtTime(3, or_latest=False))
    assert options.ending == Positions(default=AtTime(5))


def test_a_start_that_is_too_late_is_an_error_or_the_end() -> None:
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert batch(startingTimestamp="3", **strategy).starting == Positions(default=AtTime(3))
    with pytest.raises(OptionError, match="Strategy: must be error or latest"):
        batch(startingOffsetsByTimestampStrategy="earliest")


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("startingOffsets", "first", 'must be earliest, latest or JSON, not "first"'),
        (
            "startingOffsets",
            '{"orders": {"0": 1}',
            "this is not JSON: Expecting ',' delimiter at c",
        ),
        (
            "startingOffsets",
            '{"orders": {"0": x}}',
            'at character 18, near \'{"orders": {"0": x}}\'',
        ),
        ("startingOffsets", '{"orders": 3}', '"orders" must be an object such as {"0": 23}'),
        ("startingOffsets", '{"orders": {"a": 3}}', '"orders" has no partition "a"'),
        (
            "startingOffsets",
            '{"orders": {"0": "3"}}',
            '"orders", partition "0" must be a whole num',
        ),
        ("startingOffsets", '{"orders": {"0": true}}', "must be a whole number, not true"),
        ("startingOffsets", '{"orders": {"0": -3}}', "must be at least -2, not -3"),
        ("startingOffsets", '{"other": {"0": 3}}', 'partition 0 of "other" is not being read'),
        ("startingOffsets", "latest", "must not be latest in a batch"),
        (
            "startingOffsets",
            '{"orders": {"0": -1}}',
            'must not be -1, latest, for partition 0 of "o',
        ),
        ("endingOffsets", "earliest", "must not be earliest in a batch"),
        ("endingOffsets", '{"orders": {"4": -2}}', "must not be -2, earliest, for partition 4"),
        ("startingTimestamp", "-1", "must be at least 0, not -1"),
        ("endingTimestamp", "today", 'must be a whole number, not "today"'),
        ("endingOffsetsByTimestamp", '{"orders": {"0": -1}}', "must be at least 0, not -1"),
        ("failOnDataLoss", "no", 'must be true or false, not "no"'),
        ("minPartitions", "0", "must be at least 1, not 0"),
        ("splitBytes", "1 furlong", "is not one of the units"),
        ("leaseMs", "0", "must be at least 1, not 0"),
        ("columns", "offset,size", "a topic has no 'size', it has key, value"),
    ],
)
def test_a_wrong_value_is_told_with_its_place(option: str, value: str, told: str) -> None:
    with pytest.raises(OptionError) as caught:
        batch(**{option: value})
    assert str(caught.value).startswith(f"{option}: ")
    assert told in str(caught.value)


@pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(option: str) -> None:
    with pytest.raises(OptionError, match=f"^{option}: a stream has no end.*availableNow"):
        stream(**{option: "latest"})


def test_partitions_of_an_assignment_are_checked() -> None:
    given = {"assign": '{"orders": [1]}', "startingOffsets": '{"orders": {"1": 5}}'}
    assert batch_options(given).starting.by_partition == {("orders", 1): 5}
    given["startingOffsets"] = '{"orders": {"0": 5}}'
    with pytest.raises(OptionError, match='partition 0 of "orders" is not being read'):
        batch_options(given)


def test_a_pattern_matches_whole_names() -> None:
    given = {"subscribePattern": "ord", "startingOffsets": '{"orders": {"0": 5}}'}
    with pytest.raises(OptionError, match="is not being read"):
        batch_options(given)


def test_columns_are_chosen_by_option_and_headers_can_be_left_out() -> None:
    assert list(chosen_columns({"topic": "a"})) == list(ScanColumn)
    some = chosen_columns({"topic": "a", "columns": "Offset, key,offset"})
    assert some == (ScanColumn.OFFSET, ScanColumn.KEY)
    rest = chosen_columns({"topic": "a", "includeHeaders": "False"})
    assert set(ScanColumn) - set(rest) == {ScanColumn.HEADERS}
    with pytest.raises(OptionError, match="no topic is named"):
        chosen_columns({})


def test_the_rest_is_taken_as_it_stands() -> None:
    options = batch(
        failOnDataLoss="FALSE",
        maxRecordsPerPartition="10",
        where="offset < 5",
        splitBytes="8MiB",
        leaseMs="2h",
        config="/etc/stratalog.toml",
    )
    assert not options.fail_on_data_loss
    assert options.max_records_per_partition == 10
    assert options.rows == RowFilter(end_offset=5)
    assert options.split_bytes == 8 * 2**20
    assert options.lease_ms == 7_200_000
    assert options.location == ClusterLocation(config="/etc/stratalog.toml")


def test_conditions_are_for_batches_and_told_if_they_are_not_understood() -> None:
    with pytest.raises(OptionError, match=r"^where: the condition 'key = 1' is about 'key'"):
        batch(where="key = 1")
    with pytest.raises(OptionError, match=r"^where: is for batches"):
        stream(where="offset > 1")


def test_a_stream_is_admitted_between_a_least_and_a_most() -> None:
    options = stream(maxOffsetsPerTrigger="10", minOffsetsPerTrigger="10", maxTriggerDelay="5m")
    assert options.admission == Admission(max_offsets=10, min_offsets=10, max_delay_ms=300_000)
    assert stream().admission.max_delay_ms == 900_000
    for text in ("15min", "15 MIN", "15M", "900s"):
        assert stream(maxTriggerDelay=text).admission.max_delay_ms == 900_000
    with pytest.raises(OptionError, match=r"^minOffsetsPerTrigger: 11 is more than max"):
        stream(maxOffsetsPerTrigger="10", minOffsetsPerTrigger="11")
