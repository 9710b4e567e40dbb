"""A broker that starts on a control plane that is behind its store, however short the window."""

import json
import time
from pathlib import Path

import pytest
from tests.integration.broker_process import process
from tests.support.acks import Acks, save_sqlite
from typer.testing import CliRunner

from stratalog.cli.main import app


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "control.db"


@pytest.fixture
def flags(tmp_path: Path, database: Path) -> list[str]:
    # No sweep runs, so that the generation tells nothing.
    return ["--data", str(tmp_path / "data"), "--control", f"sqlite:{database}", "--no-pipeline"]


def until_witnessed(folder: Path, commits: int) -> None:
    told: list[int] = []
    for _ in range(400):
        found = (folder / "data" / "objects" / "witness").glob("*")
        told = [json.loads(path.read_bytes())["commits"] for path in found]
        if commits in told:
            return
        time.sleep(0.05)
    raise AssertionError(f"witnesses tell {told}")


def refused(flags: list[str], folder: Path) -> str:
    with process(flags, folder) as broker:
        code, said = broker.wait()
    assert code == 1
    return said


def test_commits_that_were_forgotten_between_two_generations_are_noticed_at_the_start(
    tmp_path: Path, database: Path, flags: list[str]
) -> None:
    with process([*flags, "--set", "block.window_ms=5ms"], tmp_path) as broker:
        acks = Acks(broker.address)
        acks.send("saved")
        go_back = save_sqlite(database)
        for value in ("acknowledged", "and forgotten"):
            acks.send(value)
        assert acks.offsets == [0, 1, 2]
        broker.kill()
    go_back()
    said = refused(flags, tmp_path)
    assert "it knows 1 commits of writer" in said
    assert "stratalog control accept" in said
    accepted = CliRunner().invoke(app, ["control", "accept", "--yes", *flags[:4]])
    assert accepted.exit_code == 0, accepted.output
    with process(flags, tmp_path) as broker:
        assert broker.address


def test_a_last_commit_that_was_forgotten_is_noticed_at_the_start(
    tmp_path: Path, database: Path, flags: list[str]
) -> None:
    with process([*flags, "--set", "block.witness_ms=50ms"], tmp_path) as broker:
        acks = Acks(broker.address)
        acks.send("saved")
        until_witnessed(tmp_path, 1)
        go_back = save_sqlite(database)
        acks.send("acknowledged, and forgotten")
        assert acks.offsets == [0, 1]
        until_witnessed(tmp_path, 2)
        broker.kill()
    go_back()
    said = refused(flags, tmp_path)
    assert "it knows 1 commits of writer" in said
    assert "had made 2 commits, as its witness tells" in said
    accepted = CliRunner().invoke(app, ["control", "accept", "--yes", *flags[:4]])
    assert accepted.exit_code == 0, accepted.output
    with process(flags, tmp_path) as broker:
        assert broker.address


def test_a_broker_does_not_write_into_a_folder_that_was_emptied(
    tmp_path: Path, flags: list[str]
) -> None:
    with process([*flags, "--set", "janitor.interval_ms=200ms"], tmp_path) as broker:
        acks = Acks(broker.address)
        acks.send("before")
        marker = tmp_path / "data" / "objects" / "stratalog.json"
        marker.unlink()
        code, said = broker.wait()
    assert code == 1
    assert "has no stratalog.json" in said


def test_nothing_is_acknowledged_into_a_folder_that_was_swapped(
    tmp_path: Path, flags: list[str]
) -> None:
    """A mount that goes away leaves the empty folder below it."""
    objects = tmp_path / "data" / "objects"
    with process([*flags, "--set", "janitor.interval_ms=0"], tmp_path) as broker:
        acks = Acks(broker.address)
        acks.send("before")
        objects.rename(tmp_path / "away")
        objects.mkdir()
        acks.send("into nowhere")
        assert (acks.offsets, len(acks.errors)) == ([0], 1)
        assert list(objects.iterdir()) == []
        objects.rmdir()
        (tmp_path / "away").rename(objects)
        acks.send("after")
        assert (len(acks.offsets), len(acks.errors)) == (2, 1)
