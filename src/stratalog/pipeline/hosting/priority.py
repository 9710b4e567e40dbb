"""Letting everybody else on this machine come first."""

import ctypes
import os
import platform
import sys
from contextlib import suppress
from pathlib import Path

_NICENESS = 19
"""Whoever produces and consumes comes first: measured, that took a fifth off the slowest produces
while the pipeline runs on the same machine."""

_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
"""The number of the system call, which the C library has no name for."""
_WHO_PROCESS = 1
_CLASS_IDLE = 3 << 13


def step_back() -> None:
    """For this thread and the processes that it starts; elsewhere than on Linux, for the process.
    What the system does not know is left out."""
    os.nice(_NICENESS)
    _use_the_disk_last()


def send_back_session(leader: int) -> None:
    """Linux may share processors among sessions first, whatever their processes' niceness."""
    with suppress(OSError):
        Path(f"/proc/{leader}/autogroup").write_text(str(_NICENESS))


def _use_the_disk_last() -> None:
    """Schedulers that know of classes (mq-deadline, bfq) serve the idle one when nobody else waits,
    and after seconds anyway. A broker's small writes then do not wait for large ones."""
    number = _IOPRIO_SET.get(platform.machine())
    if sys.platform.startswith("linux") and number is not None:
        ctypes.CDLL(None).syscall(number, _WHO_PROCESS, 0, _CLASS_IDLE)
