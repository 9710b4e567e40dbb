"""`stratalog group` against a real broker, with members that are real consumers."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from typer.testing import CliRunner, Result

from stratalog.cli.main import app
from stratalog.settings import GroupsSettings
from stratalog.testing.broker import FAST, Broker

PATIENCE_SECONDS = 30.0
PROTOCOLS = ["classic", "consumer"]


class Cli:
    """Runs commands against one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._runner = CliRunner(env={"STRATALOG_BOOTSTRAP": bootstrap, "NO_COLOR": "1"})

    def try_(self, *arguments: str, stdin: bytes = b"") -> Result:
        return self._runner.invoke(app, arguments, input=stdin)

    def __call__(self, *arguments: str, stdin: bytes = b"") -> str:
        result = self.try_(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(replace(FAST, groups=GroupsSettings(initial_rebalance_delay_ms=0))) as broker:
        yield broker


@pytest.fixture
def cli(broker: Broker) -> Cli:
    return Cli(broker.bootstrap)


@pytest.fixture
def topic(cli: Cli) -> str:
    """A topic for this test alone: 5 records in partition 0, with times 1 to 5, none in 1."""
    name = f"topic-{uuid4().hex[:8]}"
    cli("topic", "create", name, "--partitions", "2")
    lines = [json.dumps({"value": "x", "partition": 0, "timestamp": at}) for at in range(1, 6)]
    cli("produce", name, "--json", stdin="\n".join(lines).encode() + b"\n")
    return name


@pytest.fixture
def group() -> str:
    return f"group-{uuid4().hex[:8]}"


@contextmanager
def running_member(cli: Cli, group: str, topic: str, protocol: str = "classic") -> Iterator[None]:
    """A member that has read and committed everything, and stays."""
    consumer = Consumer(
        {
            "bootstrap.servers": cli.bootstrap,
            "client.id": "reader",
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        assert len(consumer.consume(5, timeout=PATIENCE_SECONDS)) == 5
        consumer.commit(asynchronous=False)
        yield
    finally:
        consumer.close()


def commit(cli: Cli, group: str, topic: str, offset: int) -> None:
    """The offsets of a group without members."""
    consumer = Consumer({"bootstrap.servers": cli.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed(cli: Cli, group: str) -> dict[int, int | None]:
    described = json.loads(cli("group", "describe", group, "--json"))
    return {each["partition"]: each["committed"] for each in described["partitions"]}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_is_listed_with_its_state_its_type_and_its_members(
    cli: Cli, topic: str, group: str, protocol: str
) -> None:
    with running_member(cli, group, topic, protocol):
        listed = json.loads(cli("group", "list", "--json"))
        assert {"group": group, "state": "Stable", "type": protocol, "members": 1} in listed
    assert re.search(rf"^{group} +Empty +{protocol} +0$", cli("group", "list"), re.MULTILINE)


def test_a_broker_without_groups_lists_none() -> None:
    with Broker() as other:
        assert json.loads(Cli(other.bootstrap)("group", "list", "--json")) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_describe_shows_lag_and_readers(cli: Cli, topic: str, group: str, protocol: str) -> None:
    with running_member(cli, group, topic, protocol):
        cli("produce", topic, "--partition", "0", stdin=b"y\nz\n")
        described = json.loads(cli("group", "describe", group, "--json"))
        first, second = described.pop("partitions")
        assert (first["committed"], first["end"], first["lag"]) == (5, 7, 2)
        assert (second["committed"], second["end"], second["lag"]) in [(None, 0, None), (0, 0, 0)]
        assert {(each["client"], each["host"]) for each in (first, second)} == {
            ("reader", "127.0.0.1")
        }
        assert first["member"]
        assert described["state"] == "Stable"
        assert described["coordinator"] == cli.bootstrap
        text = cli("group", "describe", group)
    assert re.search(rf"^{topic} +0 +5 +7 +2 .* reader +127.0.0.1$", text, re.MULTILINE)
    assert "state: Stable" in text


def test_describe_shows_offsets_without_readers_as_dashes(cli: Cli, topic: str, group: str) -> None:
    commit(cli, group, topic, 3)
    text = cli("group", "describe", group)
    assert re.search(rf"^{topic} +0 +3 +5 +2 +- +- +-$", text, re.MULTILINE)
    assert "state: Empty" in text


@pytest.mark.parametrize(
    ("arguments", "places"),
    [
        (["--to-earliest"], {0: 0, 1: 0}),
        (["--to-latest"], {0: 5, 1: 0}),
        (["--to-offset", "4", "--partition", "0"], {0: 4}),
        (["--to-offset", "-1"], {0: 4, 1: 0}),
        (["--to-time", "4"], {0: 3, 1: 0}),
        (["--to-time", "6"], {0: 5, 1: 0}),
    ],
)
def test_a_reset_moves_the_group(
    cli: Cli, topic: str, group: str, arguments: list[str], places: dict[int, int]
) -> None:
    commit(cli, group, topic, 2)
    cli("group", "reset", group, "--topic", topic, *arguments, "--execute")
    assert committed(cli, group) == places


def test_without_execute_a_reset_only_shows_its_plan(cli: Cli, topic: str, group: str) -> None:
    commit(cli, group, topic, 2)
    result = cli.try_("group", "reset", group, "--topic", topic, "--to-earliest")
    assert result.exit_code == 0
    assert re.search(r"^0 +2 +0 +5 +5$", result.stdout, re.MULTILINE)
    assert re.search(r"^1 +- +0 +0 +0$", result.stdout, re.MULTILINE)
    assert "add --execute" in result.stderr
    assert committed(cli, group) == {0: 2}


def test_the_plan_of_a_reset_as_json_says_whether_it_was_done(
    cli: Cli, topic: str, group: str
) -> None:
    arguments = ["group", "reset", group, "--topic", topic, "-p", "0", "--to-latest", "--json"]
    expected = {
        "group": group,
        "topic": topic,
        "executed": False,
        "partitions": [{"partition": 0, "committed": None, "new": 5, "end": 5, "lag": 0}],
    }
    assert json.loads(cli(*arguments)) == expected
    assert json.loads(cli(*arguments, "--execute")) == {**expected, "executed": True}
    assert committed(cli, group) == {0: 5}, "a group that did not exist is created"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_with_members_is_neither_reset_nor_deleted(
    cli: Cli, topic: str, group: str, protocol: str
) -> None:
    reset = ["group", "reset", group, "--topic", topic, "--to-earliest"]
    with running_member(cli, group, topic, protocol):
        for command in ([*reset, "--execute"], ["group", "delete", group, "--yes"]):
            result = cli.try_(*command)
            assert result.exit_code == 1
            assert "has 1 member, such as reader at 127.0.0.1: stop them first" in result.stderr
        assert "has 1 member" in cli.try_(*reset).stderr, "the plan may be looked at"
    assert committed(cli, group)[0] == 5


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_that_come_at_the_last_moment_are_safe_too(
    cli: Cli, topic: str, group: str, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratalog.cli.group._check_unused", lambda *_: None)
    reset = ["group", "reset", group, "--topic", topic, "--to-earliest", "--execute"]
    with running_member(cli, group, topic, protocol):
        for command in (reset, ["group", "delete", group, "--yes"]):
            result = cli.try_(*command)
            assert result.exit_code == 1
            assert f'group "{group}" has members now: stop them first' in result.stderr
    assert committed(cli, group)[0] == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to-offset", "6"], "offset 6 is outside partition 0"),
        (["--to-latest", "--partition", "2"], "no partition 2"),
    ],
)
def test_a_reset_to_where_nothing_is_is_refused(
    cli: Cli, topic: str, group: str, arguments: list[str], said: str
) -> None:
    result = cli.try_("group", "reset", group, "--topic", topic, *arguments, "--execute")
    assert result.exit_code == 1
    assert said in result.stderr


def test_a_reset_in_an_unknown_topic_is_refused(cli: Cli, topic: str, group: str) -> None:
    result = cli.try_("group", "reset", group, "--topic", f"{topic}x", "--to-latest")
    assert result.exit_code == 1
    assert f'did you mean "{topic}"?' in result.stderr


def test_a_group_is_deleted_only_when_confirmed(cli: Cli, topic: str, group: str) -> None:
    commit(cli, group, topic, 2)
    assert cli.try_("group", "delete", group, stdin=b"n\n").exit_code == 1
    assert group in cli("group", "list")
    assert f"Deleted group {group}." in cli("group", "delete", group, stdin=b"y\n")
    assert group not in cli("group", "list")


def test_an_unknown_group_is_told_with_the_nearest_name(cli: Cli, topic: str, group: str) -> None:
    commit(cli, group, topic, 2)
    for command in (["describe"], ["delete", "--yes"]):
        result = cli.try_("group", *command, f"{group}x")
        assert result.exit_code == 1
        assert f'did you mean "{group}"?' in result.stderr


def test_an_unreachable_broker_is_told_within_seconds() -> None:
    result = Cli("127.0.0.1:1").try_("group", "list")
    assert result.exit_code == 1
    assert "no Kafka broker answers at 127.0.0.1:1" in result.stderr
