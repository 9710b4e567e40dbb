"""Servers of the tests end when the tests end, even if the tests are killed."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.guardian import guard, release

_TESTS = """
import signal, subprocess, sys, time
from tests.support.guardian import guard
server = subprocess.Popen(["sleep", "600"], start_new_session=True)
guardian = guard(server, signal.SIGINT)
print(server.pid, guardian.pid, flush=True)
time.sleep(600)
"""


def _await_end(pid: int) -> None:
    deadline = time.monotonic() + 30
    while _is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_server_ends_when_the_tests_that_started_it_are_killed() -> None:
    tests = subprocess.Popen(
        [sys.executable, "-c", _TESTS],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert tests.stdout is not None
    with tests.stdout:
        server, guardian = (int(pid) for pid in tests.stdout.readline().split())
        assert _is_running(server)
        tests.kill()
        tests.wait()
    _await_end(server)
    _await_end(guardian)


def test_a_released_guardian_leaves_its_server_alone() -> None:
    with subprocess.Popen(["sleep", "600"]) as server:
        release(guard(server, signal.SIGTERM))
        assert server.poll() is None
        server.kill()
