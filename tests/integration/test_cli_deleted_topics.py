"""`topic list --deleted`, `undelete` and `purge`, beside a running broker."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stratalog.cli.main import app
from stratalog.clock import SystemClock
from stratalog.objects.open import open_store
from stratalog.recovery.deletion_notes import Deletions, read_deletions
from stratalog.settings import StorageSettings
from stratalog.testing.broker import FAST, Broker


class Cli:
    def __init__(self, broker: Broker, folder: Path) -> None:
        self._runner = CliRunner(env={"STRATALOG_BOOTSTRAP": broker.bootstrap, "NO_COLOR": "1"})
        self._place = ("--data", str(folder))

    def run(self, *arguments: str, stdin: bytes = b"", at_control: bool = False) -> Result:
        place = self._place if at_control else ()
        return self._runner.invoke(app, (*arguments, *place), input=stdin)

    def __call__(self, *arguments: str, stdin: bytes = b"", at_control: bool = False) -> str:
        result = self.run(*arguments, stdin=stdin, at_control=at_control)
        assert result.exit_code == 0, result.output
        return result.stdout


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    storage = StorageSettings(
        objects=f"file:{tmp_path / 'objects'}", control=f"sqlite:{tmp_path / 'control.db'}"
    )
    with Broker(replace(FAST, storage=storage)) as broker:
        yield Cli(broker, tmp_path)


def test_a_deleted_topic_is_listed_and_comes_back_with_its_records(cli: Cli) -> None:
    cli("topic", "create", "orders")
    cli("produce", "orders", stdin=b"one\ntwo\n")
    cli("topic", "delete", "orders", "--yes")
    assert "orders" not in cli("topic", "list")
    [listed] = json.loads(cli("topic", "list", "--deleted", "--json", at_control=True))
    assert (listed["topic"], listed["offsets"]) == ("orders", 2)
    assert "Undeleted topic orders." in cli("topic", "undelete", "orders", at_control=True)
    read = cli("consume", "orders", "--from-beginning", "--max", "2")
    assert read.splitlines() == ["one", "two"]
    cli("produce", "orders", stdin=b"three\n")
    read = cli("consume", "orders", "--from-beginning", "--max", "3")
    assert read.splitlines() == ["one", "two", "three"]


def test_the_store_has_notes_of_deletions_and_undeletions(cli: Cli, tmp_path: Path) -> None:
    cli("topic", "create", "orders")
    cli("produce", "orders", stdin=b"one\ntwo\n")
    cli("topic", "delete-records", "orders", "0", "1", "--yes")
    cli("topic", "delete", "orders", "--yes")

    def deletions() -> Deletions:
        store = open_store(f"file:{tmp_path / 'objects'}", clock=SystemClock())
        return asyncio.run(read_deletions(store))[0]

    [(key, note)] = deletions().records.items()
    assert note.before == 1
    assert deletions().is_deleted(key.topic_id)
    cli("topic", "undelete", "orders", at_control=True)
    assert not deletions().is_deleted(key.topic_id)


def test_a_purged_topic_does_not_come_back(cli: Cli) -> None:
    cli("topic", "create", "orders")
    cli("topic", "delete", "orders", "--yes")
    refused = cli.run("topic", "purge", "orders", stdin=b"n\n", at_control=True)
    assert refused.exit_code == 1
    cli("topic", "purge", "orders", "--yes", at_control=True)
    assert "being removed" in cli("topic", "list", "--deleted", at_control=True)
    refused = cli.run("topic", "undelete", "orders", at_control=True)
    assert refused.exit_code == 1
    assert "removal has begun" in refused.output


def test_dry_runs_say_how_much_would_go_and_take_nothing(
    cli: Cli, caplog: pytest.LogCaptureFixture
) -> None:
    cli("topic", "create", "orders")
    for _ in range(2):
        cli("produce", "orders", stdin=b"one\ntwo\n")
    lowered = ("topic", "alter", "orders", "--set", "retention.bytes=0")
    for command, offsets in (
        (("topic", "delete", "orders"), 4),
        (lowered, 4),
        (("topic", "delete-records", "orders", "0", "2"), 2),
    ):
        told = cli(*command, "--dry-run", at_control=True)
        assert f"Would go: {offsets} offsets" in told
    assert cli("consume", "orders", "--from-beginning").split() == ["one", "two"] * 2
    caplog.clear()
    cli(*lowered)
    assert "with 4 offsets are beyond it" in caplog.text
    assert "retention.bytes was the default until" in cli(
        "topic", "describe", "orders", at_control=True
    )
    told = cli("topic", "delete-records", "orders", "0", "2", "--yes")
    assert "Partition 0 of orders begins at 2." in told
    assert cli("consume", "orders", "--from-beginning").split() == ["one", "two"]
