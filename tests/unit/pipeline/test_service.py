"""The pipeline beside a broker, with a child that only pretends to work, and with the real one."""

import asyncio
import logging
import os
import pickle
import select
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.pipeline.lab import Lab

from stratalog.control.errors import ControlUnavailableError
from stratalog.control.open import open_control_plane
from stratalog.control.pipeline.model import UnitKind
from stratalog.control.plane import ControlPlane
from stratalog.pipeline.hosting.child_process import Child
from stratalog.pipeline.report import KEPT_ERRORS, Report
from stratalog.pipeline.service import PipelineService, kinds_of_work
from stratalog.settings import HOUR_MS, Settings, StorageSettings, TieringSettings

PATIENCE_S = 30.0
OFTEN = TieringSettings(splitter_interval_ms=2, merger_interval_ms=2, idle_ms=HOUR_MS)
PRETENDER = """
import json, sys
sys.stdin.readline()
for line in sys.stdin:
    with open(sys.argv[1], "a") as diary:
        diary.write(line)
    if {dies!r} and "merge" in line:
        sys.exit(3)
    print(json.dumps({report!r}), flush=True)
"""


class Looks:
    """Finds the work that the test sets, and counts the questions."""

    def __init__(self, *found: Sequence[UnitKind] | Exception) -> None:
        self._found = [*found]
        self.count = 0
        self._asked = asyncio.Condition()

    async def __call__(self, control: ControlPlane, settings: Settings) -> Sequence[UnitKind]:
        async with self._asked:
            self.count += 1
            self._asked.notify_all()
        answer = self._found.pop(0) if self._found else []
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def reach(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S), self._asked:
            await self._asked.wait_for(lambda: self.count >= count)


@asynccontextmanager
async def running(
    folder: Path,
    look: Looks,
    *,
    tiering: TieringSettings = OFTEN,
    dies: bool = False,
    founded: bool = True,
    report: Report = Report(),  # noqa: B008 - nobody changes it
) -> AsyncIterator[PipelineService]:
    storage = StorageSettings(
        objects=f"file:{folder / 'objects'}", control=f"sqlite:{folder / 'control.db'}"
    )
    if founded:
        await (await open_control_plane(storage.control)).close()
    script = PRETENDER.format(dies=dies, report=report.to_json())
    service = PipelineService(
        Settings(storage=storage, tiering=tiering),
        look=look,
        command=(sys.executable, "-c", script, str(folder / "diary")),
    )
    service.start()
    try:
        yield service
    finally:
        await service.stop()


def diary(folder: Path) -> list[str]:
    path = folder / "diary"
    return path.read_text().split("\n")[:-1] if path.exists() else []


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


MERGE, SPLIT = [UnitKind.MERGE], [UnitKind.SPLIT]


async def test_without_work_no_process_is_started(tmp_path: Path) -> None:
    look = Looks()
    async with running(tmp_path, look) as service:
        await look.reach(5)
        assert service.child is None


async def test_a_control_plane_that_is_missing_is_not_created_and_looked_for_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    look = Looks()
    async with running(tmp_path, look, founded=False):
        async with asyncio.timeout(PATIENCE_S):
            while "there is no control plane" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert list(tmp_path.iterdir()) == []
        await (await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")).close()
        await look.reach(1)


async def test_the_child_is_kept_for_the_next_work(tmp_path: Path) -> None:
    look = Looks(MERGE, [], MERGE, [])
    tiering = replace(OFTEN, splitter_interval_ms=HOUR_MS)
    async with running(tmp_path, look, tiering=tiering) as service:
        await look.reach(2)
        assert service.child is not None
        pid = service.child.pid
        await look.reach(4)
        assert service.child.pid == pid
        assert diary(tmp_path) == ["merge", "merge"]
    assert not is_running(pid)


async def test_only_what_is_due_is_worked_on(tmp_path: Path) -> None:
    look = Looks([*MERGE, *SPLIT])
    async with running(tmp_path, look, tiering=replace(OFTEN, merger_interval_ms=HOUR_MS)):
        await look.reach(2)
    assert diary(tmp_path) == ["split"]


async def test_the_child_goes_when_it_was_idle_for_long(tmp_path: Path) -> None:
    look = Looks(SPLIT)
    tiering = replace(OFTEN, idle_ms=0, merger_interval_ms=HOUR_MS)
    async with running(tmp_path, look, tiering=tiering) as service:
        await look.reach(3)
        assert service.child is None
    assert diary(tmp_path) == ["split"]


async def test_a_child_that_dies_is_told_of_and_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    look = Looks(MERGE, MERGE)
    tiering = replace(OFTEN, splitter_interval_ms=HOUR_MS)
    async with running(tmp_path, look, tiering=tiering, dies=True):
        await look.reach(3)
    assert diary(tmp_path) == ["merge", "merge"]
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == 2
    assert "exit code 3" in told[0]
    assert "aged records stay in blocks" in told[0]


@pytest.mark.parametrize("more", [0, 1])
async def test_of_many_failures_the_log_has_the_first_and_their_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, more: int
) -> None:
    names = [f"orders-{number}" for number in range(KEPT_ERRORS + more)]
    report = Report(failed=dict.fromkeys(names, "why"), parked=names[:3])
    look = Looks(MERGE)
    tiering = replace(OFTEN, splitter_interval_ms=HOUR_MS)
    async with running(tmp_path, look, tiering=tiering, report=report):
        await look.reach(2)
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == KEPT_ERRORS + 3 + more
    in_all = "In all, the pipeline could not convert 101 partitions, and has parked 3."
    assert (in_all in told) == bool(more)


async def test_a_look_that_fails_is_repeated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    look = Looks(ControlUnavailableError("down"), ValueError("a mistake"), SPLIT)
    tiering = replace(OFTEN, merger_interval_ms=HOUR_MS)
    async with running(tmp_path, look, tiering=tiering):
        await look.reach(4)
    assert diary(tmp_path) == ["split"]
    assert "down" in caplog.text
    assert "a mistake" in caplog.text


@pytest.mark.parametrize(
    "settings",
    [
        Settings(tiering=replace(OFTEN, enabled=False)),
        Settings(tiering=OFTEN, storage=StorageSettings(objects="memory:")),
    ],
)
async def test_it_is_not_started_where_it_is_switched_off_or_makes_no_sense(
    settings: Settings,
) -> None:
    look = Looks()
    service = PipelineService(settings, look=look)
    service.start()
    assert service._task is None
    await service.stop()


@pytest.mark.parametrize(("byte", "factor"), [(b"\0", 0.8), (b"\xff", 1.2)])
def test_brokers_do_not_look_in_step(byte: bytes, factor: float) -> None:
    service = PipelineService(Settings(), entropy=lambda size: byte * size)
    assert service._pause_s(UnitKind.SPLIT) == pytest.approx(60 * factor)
    assert service._pause_s(UnitKind.MERGE) == pytest.approx(300 * factor)


async def test_the_look_sees_what_a_run_would_do(lab: Lab) -> None:
    topic = await lab.topic()
    assert await kinds_of_work(lab.control, lab.settings) == []
    await lab.fill(topic)
    assert await kinds_of_work(lab.control, lab.settings) == MERGE
    young = replace(lab.settings, tiering=replace(lab.settings.tiering, age_ms=HOUR_MS))
    assert await kinds_of_work(lab.control, young) == []


_TELLS_ITS_FILES = """
import json, os, sys
settings, order = sys.stdin.readline(), sys.stdin.readline()
folder = "/proc/self/fd"
numbers = [number for number in os.listdir(folder) if os.path.lexists(f"{folder}/{number}")]
print(json.dumps({number: os.readlink(f"{folder}/{number}") for number in numbers}), flush=True)
sys.stdin.read()
"""


async def test_the_child_inherits_no_sockets() -> None:
    with socket.create_server(("127.0.0.1", 0)):
        child = await Child.start(Settings(), (sys.executable, "-c", _TELLS_ITS_FILES))
        open_files = await child.run(SPLIT)
        await child.stop()
    assert {"0", "1", "2"} <= open_files.keys()
    inherited = [link for number, link in open_files.items() if int(number) > 2]
    assert not [link for link in inherited if link.startswith("socket:")]


async def test_the_real_child_answers_and_ends_with_its_input(lab: Lab) -> None:
    child = await Child.start(lab.settings)
    report = await child.run(SPLIT)
    assert report["split_files"] == 0
    assert [run.report for run in await lab.control.pipeline.runs(limit=1)] == [report]
    await child.stop()
    assert not child.is_alive
    assert child._process.returncode == 0


async def test_the_real_child_ends_when_its_parent_is_killed(lab: Lab) -> None:
    script = (
        "import asyncio, pickle, sys\n"
        "from stratalog.pipeline.hosting.child_process import Child\n"
        "async def main():\n"
        "    child = await Child.start(pickle.loads(sys.stdin.buffer.read()))\n"
        "    await child.run([])\n"
        "    print(child.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(pickle.dumps(lab.settings))
    parent.stdin.close()
    child = os.pidfd_open(int(await parent.stdout.readline()))
    try:
        parent.kill()
        await parent.wait()
        ended, _, _ = await asyncio.to_thread(select.select, [child], [], [], PATIENCE_S)
        assert ended
    finally:
        os.close(child)
