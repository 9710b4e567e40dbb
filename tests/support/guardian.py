"""A guardian stops a server if its tests have ended without stopping it.

Fixtures stop their servers, unless the tests were killed, or a second Ctrl-C cut the fixtures
short. The guardian is a small process in a session of its own, which no Ctrl-C reaches. It reads
from a pipe whose other end the tests hold. The pipe is closed when the tests end, even if they are
killed.
"""

import os
import signal
import subprocess
import sys
import time

_GRACE_SECONDS = 10.0
_KILLED_SECONDS = 5.0


def guard(process: subprocess.Popen[bytes], how: signal.Signals) -> subprocess.Popen[bytes]:
    """Start a guardian. `release` ends it after the server was stopped."""
    return subprocess.Popen(
        [sys.executable, "-I", __file__, f"{process.pid}", _started(process.pid), f"{how.value}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def release(guardian: subprocess.Popen[bytes]) -> None:
    assert guardian.stdin is not None
    guardian.kill()
    guardian.wait()
    guardian.stdin.close()


def _started(pid: int) -> str:
    """Read the start time of a process, because the kernel may give its pid to another one."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            state, _, *rest = stat.read().rpartition(")")[2].split()
    except OSError:
        return "gone"
    return "gone" if state in "ZX" else rest[17]


def _end(pid: int, started: str, how: int) -> None:
    for signal_number, seconds in ((how, _GRACE_SECONDS), (signal.SIGKILL, _KILLED_SECONDS)):
        deadline = time.monotonic() + seconds
        if _started(pid) == started:
            os.kill(pid, signal_number)
        while _started(pid) == started and time.monotonic() < deadline:
            time.sleep(0.05)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    _end(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
