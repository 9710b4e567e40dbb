"""The commands of backup, restore and rebuild, as an operator runs them."""

import asyncio
import json
from pathlib import Path

from tests.integration.backup.drill import DrillWriter
from tests.unit.pipeline.lab import Lab
from typer.testing import CliRunner

from stratalog.cli.main import app


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, result.output
    return result.stdout


async def write_cluster(folder: Path, blocks: int) -> None:
    async with Lab.open(folder) as lab:
        topic = await lab.topic(partitions=1)
        writer = DrillWriter(lab)
        for _ in range(blocks):
            await writer.write(topic, {0: [3]})


async def write_more(folder: Path) -> None:
    async with Lab.open(folder) as lab:
        [topic] = await lab.control.topics.all()
        writer = DrillWriter(lab)
        for _ in range(2):
            await writer.write(topic, {0: [2]})
        await lab.run()


def test_a_cluster_is_backed_up_lost_and_restored_by_commands(tmp_path: Path) -> None:
    asyncio.run(write_cluster(tmp_path, blocks=2))
    at = ["--objects", f"file:{tmp_path / 'objects'}"]
    lost = [*at, "--control", f"sqlite:{tmp_path / 'control.db'}"]
    new = [*at, "--control", f"sqlite:{tmp_path / 'new.db'}"]
    made = json.loads(run("backup", "create", *lost, "--keep", "2", "--json"))
    asyncio.run(write_more(tmp_path))
    (tmp_path / "control.db").unlink()
    assert made["name"] in run("backup", "list", *new)
    assert "It can be restored" in run("backup", "verify", *new)
    planned = json.loads(run("backup", "restore", "--dry-run", *new, "--json"))
    assert not (tmp_path / "new.db").exists()
    restored = json.loads(run("backup", "restore", "--yes", *new, "--json"))
    assert restored == planned
    [partition] = restored["partitions"]
    assert (partition["partition"], partition["known_end"], partition["end"]) == ("orders-0", 6, 10)
    assert "halted      no" in run("control", "status", *new)
    run("fsck", "--deep", *new)
    run("backup", "restore", "--yes", *new, code=1)


def test_a_cluster_without_a_backup_is_rebuilt_by_a_command(tmp_path: Path) -> None:
    asyncio.run(write_cluster(tmp_path, blocks=4))
    new = [
        "--objects",
        f"file:{tmp_path / 'objects'}",
        "--control",
        f"sqlite:{tmp_path / 'new.db'}",
    ]
    planned = json.loads(run("control", "rebuild", "--dry-run", *new, "--json"))
    rebuilt = json.loads(run("control", "rebuild", "--yes", *new, "--json"))
    assert rebuilt == planned
    assert rebuilt["new_topics"] == ["orders"]
    [partition] = rebuilt["partitions"]
    assert (partition["end"], partition["inferred"]) == (12, [[9, 12]])
    run("fsck", "--deep", *new)


def test_accepting_a_control_plane_recovers_first(tmp_path: Path) -> None:
    asyncio.run(write_cluster(tmp_path, blocks=1))
    database = tmp_path / "control.db"
    saved = database.read_bytes()
    asyncio.run(write_more(tmp_path))
    database.write_bytes(saved)
    at = ["--objects", f"file:{tmp_path / 'objects'}", "--control", f"sqlite:{database}"]
    [partition] = json.loads(run("control", "accept", "--yes", *at, "--json"))["partitions"]
    assert (partition["known_end"], partition["end"]) == (3, 7)
    run("fsck", "--deep", *at)
