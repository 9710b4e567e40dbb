"""The units of a run: one claimed partition each, from the plan to the commit.

A unit is settled once. Its claim is released after success, counted as failed after an error of its
own, put back behind others after an error that waiting may cure, and given back unchanged when a
change by another process kept the unit from being done.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stratalog.control.pipeline.errors import ClaimLostError
from stratalog.control.pipeline.model import Claim, ClaimToken
from stratalog.control.segments.errors import BoundaryMovedError, SegmentStateError
from stratalog.errors import OutcomeUnknownError, RetriableError, StratalogError
from stratalog.objects.errors import StoreAccessError
from stratalog.pipeline.plan.tasks import Task

log = logging.getLogger(__name__)

_OVERTAKEN = (ClaimLostError, BoundaryMovedError, SegmentStateError)
"""The control plane's refusals when another process was faster."""


@dataclass(slots=True, kw_only=True)
class Unit:
    claim: Claim
    name: str
    """Topic and partition, for people."""
    kind: str
    """The name of the kind of job that works on the unit."""
    counts_attempts: bool = True
    """See `Kind.counts_attempts`."""
    tasks_left: int = 0
    commits: int = 0
    error: str | None = None
    counts: bool = False
    """True if the error is the unit's own, so that the partition is parked after some of them."""
    overtaken: bool = False
    """The rows were deleted, or the claim was lost. That is no failure."""
    lost: bool = False
    """The claim was lost: nothing is committed under it any more."""

    @property
    def is_broken(self) -> bool:
        return self.error is not None or self.overtaken

    @property
    def failed_uncounted(self) -> bool:
        return self.error is not None and not self.counts

    def fail(self, error: str, *, counts: bool) -> None:
        """Note an error, unless an earlier one has broken the unit already."""
        if not self.is_broken:
            self.error, self.counts = error, counts

    def overtake(self, reason: object) -> None:
        log.info("%s was overtaken: %s", self.name, reason)
        self.overtaken = True

    def lose(self) -> None:
        self.overtaken = self.lost = True

    def note_error(self, error: Exception) -> None:
        """Sort the error of a commit.

        A change by another process ends the unit quietly. An error that waiting may cure is not
        counted, nor is a store that refuses access. A missing object is counted: otherwise the
        runs would look for it again and again, without end.
        """
        if isinstance(error, _OVERTAKEN):
            self.overtake(error)
        elif isinstance(error, RetriableError | OutcomeUnknownError | StoreAccessError):
            self.fail(str(error), counts=False)
        elif isinstance(error, StratalogError):
            self.fail(str(error), counts=self.counts_attempts)
        else:
            log.error("%s failed unexpectedly", self.name, exc_info=error)
            self.fail(f"{type(error).__name__}: {error}", counts=self.counts_attempts)


class Units:
    def __init__(self, units: Iterable[Unit]) -> None:
        self._units = {unit.claim.token: unit for unit in units}

    def __getitem__(self, token: ClaimToken) -> Unit:
        return self._units[token]

    def plan(self, tasks: Iterable[Task]) -> None:
        """Note the tasks that every unit waits for."""
        for task in tasks:
            for token in task.tokens:
                self._units[token].tasks_left += 1

    def replan(self, tasks: Iterable[Task], smaller: Iterable[Task]) -> None:
        """Wait for smaller tasks instead of the tasks that they were cut from."""
        self.plan(smaller)
        for task in tasks:
            for token in task.tokens:
                self._units[token].tasks_left -= 1

    def task_ended(self, task: Task) -> list[Unit]:
        """Return the units that waited for nothing but this task."""
        ended = []
        for token in task.tokens:
            unit = self._units[token]
            unit.tasks_left -= 1
            if unit.tasks_left == 0:
                ended.append(unit)
        return ended

    def idle(self) -> list[Unit]:
        """Return the units for which no task was planned."""
        return [unit for unit in self._units.values() if unit.tasks_left == 0]

    def without(self, tokens: set[ClaimToken]) -> list[Unit]:
        return [unit for token, unit in self._units.items() if token not in tokens]


def tokens_of(units: Sequence[Unit]) -> list[ClaimToken]:
    return [unit.claim.token for unit in units]
