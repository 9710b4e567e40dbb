"""A guardian kills a JVM whose owner was killed, if the JVM does not end by itself.

Spark's JVM notices the end of its owner, and then stops in its own orderly way. On a busy machine,
or in the middle of tasks, that takes minutes, in which it holds its memory and works for no one.

The guardian is a small process in a session of its own, which no Ctrl-C reaches. It reads from a
pipe whose other end the owner holds, and which closes when the owner ends, even if it is killed.
Systems without /proc, where the guardian could not tell the JVM from a later process of the same
number, leave the JVM to itself.
"""

import os
import signal
import subprocess
import sys
import threading

_GRACE_SECONDS = 15
_LOOKS_PER_SECOND = 10


def guard(pid: int) -> "subprocess.Popen[bytes]":
    """Start a guardian. `release` ends it after the JVM has ended."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, f"{pid}", _started(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def release(guardian: "subprocess.Popen[bytes]") -> None:
    assert guardian.stdin is not None
    guardian.kill()
    guardian.wait()
    guardian.stdin.close()


def _started(pid: int) -> str:
    """Read the start time of a process, because the kernel may give its number to another one."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            state, _, *rest = stat.read().rpartition(")")[2].split()
    except OSError:
        return "gone"
    return "gone" if state in "ZX" else rest[17]


def _end(pid: int, started: str) -> None:
    for _ in range(_GRACE_SECONDS * _LOOKS_PER_SECOND):
        if _started(pid) != started:
            return
        threading.Event().wait(1 / _LOOKS_PER_SECOND)
    if started != "gone" and _started(pid) == started:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    _end(int(sys.argv[1]), sys.argv[2])
