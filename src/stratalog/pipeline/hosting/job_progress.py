"""The progress of jobs, for a listener that shows it."""

from dataclasses import dataclass
from typing import Protocol

from stratalog.pipeline.jobs import Bin


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCounts:
    """The tasks of one bin. Speculative copies count as running, never as done twice."""

    done: int = 0
    running: int = 0


class ProgressListener(Protocol):
    """All calls come from the event loop's thread, and must not block it."""

    def bin_started(self, work: Bin) -> None: ...

    def bin_moved(self, work: Bin, counts: TaskCounts) -> None:
        """Some tasks have begun or ended since the last call."""

    def bin_ended(self, work: Bin, *, failed: bool) -> None: ...


class NoListener:
    """The listener of a run that is not shown."""

    def bin_started(self, work: Bin) -> None:
        pass

    def bin_moved(self, work: Bin, counts: TaskCounts) -> None:
        pass

    def bin_ended(self, work: Bin, *, failed: bool) -> None:
        pass
