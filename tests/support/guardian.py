"""The guardian of the tests ends the programs that they have started and left behind.

Fixtures stop their programs, unless the tests were killed, or a second Ctrl-C cut the fixtures
short. The guardian is a small process in a session of its own, which no Ctrl-C reaches. It reads
from a pipe whose other end the tests hold, and which closes when the tests end, even if they are
killed. All that the tests start inherits a mark in its environment, by which the guardian knows it:
servers, brokers, JVMs, and the processes that these have started.
"""

import atexit
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_MARK = "GUARDED_TESTS"
_GRACE_SECONDS = 10.0
_guardians: list[subprocess.Popen[bytes]] = []


def be_guarded() -> None:
    """Mark all programs that this process starts from now on, and end them with it."""
    if _guardians:
        return
    unmarked = {name: value for name, value in os.environ.items() if name != _MARK}
    os.environ[_MARK] = mark = f"{os.getpid()}-{time.time_ns()}"
    guardian = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=unmarked,
        start_new_session=True,
    )
    _guardians.append(guardian)
    atexit.register(_dismiss, guardian)


def _dismiss(guardian: subprocess.Popen[bytes]) -> None:
    """Wait until nothing is left."""
    assert guardian.stdin is not None
    guardian.stdin.close()
    guardian.wait()


def marked(mark: str) -> Iterator[int]:
    """Yield the processes with this mark. Other systems than Linux do not tell."""
    wanted = f"{_MARK}={mark}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            if state not in "ZX" and wanted in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)


def _end(mark: str) -> None:
    deadline = time.monotonic() + _GRACE_SECONDS
    _signal(mark, signal.SIGTERM)
    while any(True for _ in marked(mark)):
        if time.monotonic() > deadline:
            _signal(mark, signal.SIGKILL)
        time.sleep(0.1)


def _signal(mark: str, number: signal.Signals) -> None:
    for pid in marked(mark):
        with suppress(OSError):
            os.kill(pid, number)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    _end(sys.argv[1])
