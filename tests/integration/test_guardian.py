"""Programs of the tests end with the tests, however these end, and a JVM ends with its owner."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.guardian import marked

from stratalog.pipeline.hosting.guardian import guard, release

_ROOT = Path(__file__).parents[2]
_SECONDS = 60
_TESTS = """
import os, subprocess, time
from tests.support.servers import run_postgres, run_s3_server

def test_servers():
    with run_postgres(), run_s3_server():
        subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600"], start_new_session=True)
        print("mark", os.environ["GUARDED_TESTS"], flush=True)
        time.sleep(600)
"""
_LEAVING = """
import os, subprocess
from tests.support.guardian import be_guarded
be_guarded()
subprocess.Popen(["sleep", "600"])
print("mark", os.environ["GUARDED_TESTS"], flush=True)
"""
_OWNER = """
import subprocess, time
from stratalog.pipeline.hosting.guardian import guard
jvm = subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 1; done"])
guardian = guard(jvm.pid)
print(jvm.pid, guardian.pid, flush=True)
time.sleep(600)
"""


def _interrupt(tests: "subprocess.Popen[str]") -> None:
    os.killpg(tests.pid, signal.SIGINT)


def _interrupt_twice(tests: "subprocess.Popen[str]") -> None:
    _interrupt(tests)
    time.sleep(0.2)
    _interrupt(tests)


def _kill(tests: "subprocess.Popen[str]") -> None:
    tests.kill()


@pytest.mark.parametrize("end", [_interrupt, _interrupt_twice, _kill])
def test_nothing_is_left_of_tests_that_were_interrupted_or_killed(
    end: Callable[["subprocess.Popen[str]"], None], tmp_path: Path
) -> None:
    (tmp_path / "test_servers.py").write_text(_TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", f"{tmp_path}"]
    # As a shell starts a command: with a group of its own, to which the terminal sends Ctrl-C.
    with _started(command) as tests:
        mark = _mark_of(tests)
        try:
            # PostgreSQL, the S3 server, a shell and its child.
            _await(lambda: len([*marked(mark)]) >= 4, "not all have started")
        finally:
            end(tests)
    _await(lambda: not [*marked(mark)], "something is left")


def test_tests_that_end_wait_until_nothing_is_left() -> None:
    with _started([sys.executable, "-c", _LEAVING]) as tests:
        mark = _mark_of(tests)
        assert tests.wait() == 0
        assert [*marked(mark)] == []


def test_a_jvm_that_does_not_end_with_its_owner_is_killed() -> None:
    with _started([sys.executable, "-c", _OWNER]) as owner:
        assert owner.stdout is not None
        jvm, guardian = (int(pid) for pid in owner.stdout.readline().split())
        assert _is_running(jvm)
        owner.kill()
    _await(lambda: not _is_running(jvm), "the JVM still runs")
    _await(lambda: not _is_running(guardian), "the guardian still runs")


def test_a_released_guardian_leaves_its_jvm_alone() -> None:
    with subprocess.Popen(["sleep", "600"]) as jvm:
        release(guard(jvm.pid))
        assert jvm.poll() is None
        jvm.kill()


def _started(command: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=_ROOT, start_new_session=True
    )


def _mark_of(tests: "subprocess.Popen[str]") -> str:
    assert tests.stdout is not None
    for line in tests.stdout:
        if "mark " in line:
            return line.split("mark ")[1].strip()
    raise AssertionError("the tests ended before they had started anything")


def _await(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
