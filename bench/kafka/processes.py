"""Processor time out of /proc: of a tree of processes, and of everything else on the machine."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LOOK_SECONDS = 0.5
TICKS = os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1
KERNEL_THREADS = 2
"""The process id of kthreadd, the parent of all threads of the kernel."""
_PARENT, _USER, _DEAD_CHILDREN_SYSTEM = 1, 11, 14
"""Positions behind the name of the process: proc_pid_stat(5)."""


@dataclass(frozen=True, slots=True)
class Process:
    number: int
    parent: int
    seconds: float
    """Of the process and of its children that have ended."""


def _processes() -> dict[int, Process]:
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # It has ended.
            times = fields[_USER : _DEAD_CHILDREN_SYSTEM + 1]
            number = int(folder.name)
            found[number] = Process(number, int(fields[_PARENT]), sum(map(int, times)) / TICKS)
    return found


def _tree_seconds(root: int, processes: dict[int, Process]) -> float:
    return sum(p.seconds for p in processes.values() if _descends(p, root, processes))


def _descends(process: Process, root: int, processes: dict[int, Process]) -> bool:
    while process.number != root:
        if process.parent not in processes:
            return False
        process = processes[process.parent]
    return True


def tree_seconds(root: int) -> float:
    """Processor time of a process and of all its children, dead or alive."""
    return _tree_seconds(root, _processes())


def _busy_seconds() -> float:
    """Of the whole machine, and stolen from it. Interrupts are left out: no process has them."""
    with Path("/proc/stat").open() as stat:
        user, nice, system, _idle, _wait, _irq, _softirq, steal = map(
            int, stat.readline().split()[1:9]
        )
    return (user + nice + system + steal) / TICKS


def _others_seconds() -> float:
    """The kernel's threads are left out, because they mostly write pages of the measured ones."""
    processes = _processes()
    kernel = _tree_seconds(KERNEL_THREADS, processes)
    return _busy_seconds() - _tree_seconds(os.getpid(), processes) - kernel


class Noise:
    """The share of the machine's cores that processes of others used meanwhile."""

    share = 0.0

    @classmethod
    @contextmanager
    def measured(cls) -> Iterator["Noise"]:
        noise = cls()
        others, started = _others_seconds(), time.perf_counter()
        yield noise
        elapsed = time.perf_counter() - started
        noise.share = max(0.0, (_others_seconds() - others) / elapsed / CORES)


class Patience:
    """Waits until others use no more than a share of the machine, or it has run out for good."""

    def __init__(self, most_share: float, seconds: float) -> None:
        self._most_share = most_share
        self._seconds = seconds

    def wait_for_quiet(self) -> None:
        while self._seconds > 0:
            with Noise.measured() as noise:
                time.sleep(LOOK_SECONDS)
            if noise.share <= self._most_share:
                return
            self._seconds -= LOOK_SECONDS
