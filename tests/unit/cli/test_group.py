import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # Public, but not marked so.
    MemberAssignment,
    MemberDescription,
)
from typer.testing import CliRunner

from stratalog.cli.group import Progress, no_such_group, progress
from stratalog.cli.main import app

runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
COMMANDS = ["list", "describe", "reset", "delete"]


def member(name: str, *places: tuple[str, int]) -> MemberDescription:
    assigned = [TopicPartition(topic, partition) for topic, partition in places]
    return MemberDescription(name, f"client-{name}", "/10.0.0.1", MemberAssignment(assigned))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_shows_an_example_of_it(command: str) -> None:
    result = runner.invoke(app, ["group", command, "--help"])
    assert result.exit_code == 0
    assert f"stratalog group {command}" in result.stdout.partition("Examples")[2]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_what_it_is_for(command: str) -> None:
    result = runner.invoke(app, ["group", command, "--help"])
    for line in result.stdout.splitlines():
        if line.startswith("│ --"):
            assert line.rstrip("│ ").endswith((".", "]")), line


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--to-earliest", "--to-latest"],
        ["--to-latest", "--to-offset", "0"],
        ["--to-offset", "0", "--to-time", "0"],
        ["--to-earliest", "--partition", "-1"],
    ],
)
def test_a_reset_takes_exactly_one_place_to_go_to(arguments: list[str]) -> None:
    result = runner.invoke(app, ["group", "reset", "g", "--topic", "t", *arguments])
    assert result.exit_code == 2


def test_a_reset_needs_a_topic() -> None:
    assert runner.invoke(app, ["group", "reset", "g", "--to-earliest"]).exit_code == 2


def test_a_reset_to_no_point_in_time_is_told_before_anybody_is_asked() -> None:
    result = runner.invoke(app, ["group", "reset", "g", "--topic", "t", "--to-time", "soon"])
    assert result.exit_code == 1
    assert "not a point in time" in result.stderr


def test_each_partition_is_shown_with_its_lag_and_its_reader() -> None:
    readers = [member("a", ("t", 1)), member("b", ("t", 0))]
    rows = progress(readers, {("t", 0): 3, ("t", 1): 7}, {("t", 0): 10, ("t", 1): 7})
    assert rows == [
        Progress("t", 0, 3, 10, 7, "b", "client-b", "10.0.0.1"),
        Progress("t", 1, 7, 7, 0, "a", "client-a", "10.0.0.1"),
    ]


def test_a_partition_that_is_assigned_but_not_committed_has_no_lag() -> None:
    (row,) = progress([member("a", ("t", 0))], {}, {("t", 0): 10})
    assert (row.committed, row.end, row.lag) == (None, 10, None)


def test_a_partition_that_nobody_reads_has_no_member() -> None:
    (row,) = progress([], {("t", 0): 0}, {("t", 0): 1})
    assert row == Progress("t", 0, 0, 1, 1, None, None, None)


def test_a_partition_that_is_gone_has_neither_end_nor_lag() -> None:
    (row,) = progress([], {("t", 0): 5}, {})
    assert (row.end, row.lag) == (None, None)


def test_a_commit_beyond_the_end_is_no_negative_lag() -> None:
    (row,) = progress([], {("t", 0): 5}, {("t", 0): 4})
    assert row.lag == 0


def test_a_member_without_partitions_is_shown_last() -> None:
    rows = progress([member("idle"), member("busy", ("t", 0))], {}, {("t", 0): 1})
    assert [row.member for row in rows] == ["busy", "idle"]
    assert (rows[1].topic, rows[1].partition) == (None, None)


def test_an_unknown_group_is_told_with_the_nearest_name() -> None:
    assert 'did you mean "billing"?' in str(no_such_group("biling", ["billing", "x"]))
    assert "stratalog group list" in str(no_such_group("other", ["billing"]))
