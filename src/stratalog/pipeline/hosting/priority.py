"""A low priority for the pipeline, so that all other processes on the machine come first."""

import ctypes
import os
import platform
import sys
from contextlib import suppress
from pathlib import Path

_NICENESS = 10
"""Producers and consumers come first: beside one busy process of normal priority, the pipeline has
a tenth of a processor. The lowest priority, 19, would leave it a hundredth, and next to nothing
beside several: aged records would then wait for as long as the machine is busy."""

_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
"""The number of the system call, for which the C library has no function."""
_WHO_PROCESS = 1
_CLASS_IDLE = 3 << 13


def step_back() -> None:
    """Lower the priority of this thread and of the processes that it starts.

    On systems other than Linux the whole process is lowered. A priority that the system does not
    know is left out.
    """
    os.nice(_NICENESS)
    _use_the_disk_last()


def send_back_session(leader: int) -> None:
    """Lower a session. Linux may share processors among sessions before it looks at niceness."""
    with suppress(OSError):
        Path(f"/proc/{leader}/autogroup").write_text(str(_NICENESS))


def _use_the_disk_last() -> None:
    """Put the disk requests into the idle class.

    Schedulers with classes (mq-deadline, bfq) serve the idle one when no other request waits, and
    after seconds anyway. A broker's small writes then do not wait for large ones.
    """
    number = _IOPRIO_SET.get(platform.machine())
    if sys.platform.startswith("linux") and number is not None:
        ctypes.CDLL(None).syscall(number, _WHO_PROCESS, 0, _CLASS_IDLE)
