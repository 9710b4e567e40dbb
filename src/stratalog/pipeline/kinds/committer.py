"""The driver's half of a kind: the commits of one run's answers, and the state between them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stratalog.clock import Clock
from stratalog.control.plane import ControlPlane
from stratalog.ids import ObjectId
from stratalog.objects.store import ObjectStore
from stratalog.pipeline.kinds.segment_finisher import SegmentFinisher
from stratalog.pipeline.plan.tasks import Task, TaskDone
from stratalog.pipeline.report import Report
from stratalog.pipeline.units import Unit, Units

TaskT = TypeVar("TaskT", bound=Task)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitContext:
    """The things that a committer works with."""

    control: ControlPlane
    objects: ObjectStore
    finisher: SegmentFinisher
    clock: Clock
    units: Units
    report: Report
    stuck: set[ObjectId]
    """Objects out of which a row cannot be moved."""


class Committer(ABC, Generic[TaskT]):
    """Commits the answers of one kind in one run.

    Commits of different tasks run at the same time, in one event loop. An error that belongs to a
    unit is noted on the unit and never raised: the other units go on.
    """

    def __init__(self, context: CommitContext) -> None:
        self.context = context
        self.units = context.units
        self.report = context.report

    def planned(self, task: TaskT) -> None:
        """Note a task of the plan. Called for each task before the first job starts."""

    def needs(self, part: Any) -> bool:
        """Tell whether a part of a task could still be committed; otherwise it is not begun."""
        return not self.units[part.token].lost

    def answered(self, task: TaskT, answer: TaskDone) -> None:
        """Note an answer, as soon as it is there and before anything of it is committed.

        The next job asks `needs` before the commits of this answer are done. A task that was given
        up, or not run, is answered with an empty `TaskDone`.
        """

    @abstractmethod
    async def commit(self, answer: TaskDone) -> None:
        """Commit the objects in `answer.made`, and count them in the report."""

    def settled(self, unit: Unit) -> None:
        """Count a unit in the report, and forget it. Nothing more comes for it."""
