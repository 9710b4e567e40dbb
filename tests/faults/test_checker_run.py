"""Two brokers on PostgreSQL and S3 are killed, paused and cut off, and keep their word."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.servers import S3Server

from stratalog.settings import StorageSettings
from stratalog.testing import Broker
from stratalog.testing.checker.__main__ import summary
from stratalog.testing.checker.faults import Kind
from stratalog.testing.checker.history import Commit, Note, Stage
from stratalog.testing.checker.recorder import Recorder
from stratalog.testing.checker.run import Plan, run

SECONDS = 10.0
SEED = 3


@pytest.fixture(autouse=True)
def quiet_clients() -> None:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


async def test_clients_of_brokers_that_are_broken_all_the_time_see_no_violation(
    postgres_dsn: str, s3_server: S3Server, s3_url: str, tmp_path: Path
) -> None:
    ticks: list[int] = []

    def tick(_: float, recorder: Recorder) -> None:
        ticks.append(recorder.acked)

    plan = Plan(
        seconds=SECONDS,
        seed=SEED,
        storage=StorageSettings(
            control=postgres_dsn, objects=s3_url, object_options=s3_server.options
        ),
        folder=tmp_path,
        drain_s=30.0,
        groups=True,
        disasters=(Kind.HOSTILE, Kind.EAGER),
    )
    outcome = await run(plan, tick)
    told = "\n".join(summary(outcome, SEED))
    faults = [event.what for event in outcome.history if isinstance(event, Note)]
    assert outcome.report.findings == [], f"{told}\n{faults}"
    assert outcome.fsck is not None
    assert outcome.fsck.findings == []
    assert outcome.fsck.counts["batches"] > 0
    assert outcome.ok, told
    assert {name.partition(" ")[0] for name in outcome.faults} >= {"process"}
    assert outcome.faults.keys() & {"clients hostile client", "process aggressive janitor"}
    assert outcome.most_memory_bytes > 0
    assert sum(outcome.faults.values()) >= 4
    assert outcome.report.counts["sent ok"] > 500
    assert ticks
    assert any(isinstance(event, Commit) and event.stage is Stage.OK for event in outcome.history)


def test_the_command_judges_brokers_of_others_and_stored_histories(
    stratalog_broker: Broker, tmp_path: Path
) -> None:
    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "stratalog.testing.checker", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
        )

    folder = tmp_path / "run"
    done = command("--seconds", "1", "-b", stratalog_broker.bootstrap, "--folder", f"{folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict   no violation in" in done.stdout
    assert json.loads((folder / "report.json").read_text())["ok"]

    stored = folder / "history.jsonl"
    assert command("--judge", f"{stored}").returncode == 0
    lines = stored.read_text().splitlines()
    kept = [line for line in lines if '"event": "poll"' not in line]
    assert len(kept) < len(lines)
    stored.write_text("\n".join(kept))
    judged = command("--judge", f"{stored}")
    assert judged.returncode == 1
    assert "unseen" in judged.stdout
