"""Tasks and their answers. The driver and the executors exchange them pickled.

A task is one row of a job's plan. The plan fixes everything in a task, so that a repeated attempt
makes the same objects under other names. A task never fails because of one of its units: the
failure of a unit is part of the answer, and the other units of the task are done all the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import ClaimToken


class TaskPart(Protocol):
    """The share of one claim in a task: rows of one partition, in offset order."""

    @property
    def token(self) -> ClaimToken: ...

    @property
    def topic_name(self) -> str: ...

    @property
    def rows(self) -> Sequence[Coordinates]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The work of one executor call. Each kind of job has a subclass of its own."""

    kind: ClassVar[str]
    """The name of the kind that runs the task: see `kinds/registry.py`."""
    parts: Sequence[TaskPart]

    @property
    def tokens(self) -> list[ClaimToken]:
        """The claims that the task works for, without repetition."""
        return list(dict.fromkeys(part.token for part in self.parts))

    @property
    def row_lists(self) -> list[Sequence[Coordinates]]:
        """The rows of each part."""
        return [part.rows for part in self.parts]

    def with_parts(self, parts: Sequence[TaskPart]) -> Self:
        return replace(self, parts=parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyTask(Task):
    """A task without parts, which opens the stores on an executor and does nothing else."""

    kind: ClassVar[str] = "empty"
    parts: Sequence[TaskPart] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFailed:
    """The failure of a unit. The text names objects and offsets, never a secret."""

    token: ClaimToken
    error: str
    retriable: bool
    """True if waiting may help (the store did not answer), False if the data is bad."""
    row: Coordinates | None = None
    """The row that could not be moved, if the failure is one row's."""
    lost: bool = False
    """The row's object is missing: either the row is out of date, or the data is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The cost of a task, measured."""

    bytes_read: int = 0
    bytes_written: int = 0
    requests: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDone:
    """The answer to a task."""

    made: Sequence[Any] = ()
    """The uploaded objects, to be committed by the driver. Their type is up to the task's kind."""
    failed: Sequence[UnitFailed] = ()
    effort: Effort = Effort()
