"""The interface of a kind of job. The driver and the executors know kinds, not which.

A kind selects partitions, plans tasks, runs a task on an executor, commits the answer and knows its
cost. An `AgedKind` chooses among the partitions with aged rows. A `SearchKind` looks for work of
its own, after the aged kinds are done, with the bytes that they left of the run's budget.

A kind has no state: executors find it by its name, and the state of a run is in its `Committer`.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol

from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import Claim, ClaimWish, UnitKind
from stratalog.control.plane import ControlPlane
from stratalog.ids import ObjectId, TopicId, TopicPartition
from stratalog.pipeline.kinds.committer import CommitContext, Committer, TaskT
from stratalog.pipeline.plan.claimed_rows import ClaimedRows
from stratalog.pipeline.plan.selection import Candidate, Selection
from stratalog.pipeline.plan.tasks import Task, TaskDone
from stratalog.pipeline.topic_facts import TopicFacts
from stratalog.pipeline.workplace import OpenWorkplace
from stratalog.settings import TieringSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class KindCost:
    """The cost of the tasks of one kind, beside the reads, which cost the same for every kind."""

    figures: Mapping[str, int]
    """Numbers for the plan as JSON, by field name."""
    line: str
    """The numbers for people. It begins with the kind's name, filled up to eight characters."""
    write_requests: int
    rows_kept: int
    """Rows that the control plane has for the result."""


class Kind(ABC, Generic[TaskT]):
    name: ClassVar[str]
    """The name in tasks, by which executors find the kind, and in the names of Spark jobs."""
    unit_kind: ClassVar[UnitKind]
    """The mark of its claims in the control plane. `--only` and the intervals of the service choose
    kinds by it; several kinds may share one."""
    counts_attempts: ClassVar[bool] = True
    """True if success and failure count as attempts to convert the partition. False means that bad
    data does not bring the partition nearer to being parked, that a success does not clear
    earlier failures, and that partitions which failed before are not run apart. A partition that
    breaks its Spark job counts in any case, or it would break one in every run."""

    @abstractmethod
    async def run(self, task: TaskT, place: OpenWorkplace) -> TaskDone:
        """Do a task, on an executor. The failure of a unit belongs in the answer.

        Everything that is written must be an orphan until the driver commits it: jobs are repeated,
        and an executor may be killed anywhere.
        """

    @abstractmethod
    def committer(self, context: CommitContext) -> Committer[TaskT]:
        """Make the driver's half, for one run."""

    @abstractmethod
    def cost(self, tasks: Sequence[TaskT]) -> KindCost: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedWork:
    """The claims of one kind, and the facts that its plan depends on."""

    claimed: Sequence[ClaimedRows]
    topics: Mapping[TopicId, TopicFacts]
    settings: TieringSettings
    now_ms: int


class AgedKind(Kind[TaskT]):
    """A kind that converts aged rows of partitions."""

    @abstractmethod
    def wants(self, candidate: Candidate) -> bool:
        """Tell whether to take a partition. Kinds are asked in the order of the registry."""

    def is_worth_starting(self, wanted: Sequence[Candidate]) -> bool:
        """Tell whether the partitions that the kind wants are worth a run, taken together."""
        return bool(wanted)

    @abstractmethod
    def plan(self, work: ClaimedWork) -> Sequence[TaskT]:
        """Turn claimed rows into tasks. Pure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchScope:
    """The limits of a search."""

    control: ControlPlane
    topics: Mapping[TopicId, TopicFacts]
    settings: TieringSettings
    selection: Selection
    """The partitions that the run converts otherwise, or leaves."""
    spared: Collection[TopicPartition]
    """Partitions that are converted soon, or have just failed."""
    converted: Sequence[Coordinates] = ()
    """Rows that are still there, and will be gone when the search's result is executed."""

    @property
    def left_bytes(self) -> int:
        """The rest of the run's bytes, after the selected partitions."""
        selected_bytes = sum(partition.bytes for partition in self.selection.selected)
        return self.settings.max_bytes_per_run - selected_bytes


class Finding(ABC):
    """The result of a search that found work."""

    @property
    @abstractmethod
    def wishes(self) -> list[ClaimWish]: ...

    @abstractmethod
    def plan(self, claims: Sequence[Claim]) -> Sequence[Task]:
        """Turn the claims that were granted into tasks. Pure."""

    @abstractmethod
    async def conclude(self, claims: Sequence[Claim], stuck: Collection[ObjectId]) -> None:
        """Note the outcome, after the last commit. `stuck` are objects with immovable rows."""


class Watch(Protocol):
    """Asks again and again whether a search would find anything."""

    async def finds_any(self, scope: SearchScope) -> bool: ...


class SearchKind(Kind[TaskT]):
    """A kind that looks for its work by itself."""

    claims_parked: ClassVar[bool] = False
    """True if the kind may claim parked partitions."""
    search_failed: ClassVar[str]
    """The warning when a search fails, with one `%s` for the error. Nothing else is done then: the
    rest of the pipeline's work does not wait."""

    @abstractmethod
    async def search(self, scope: SearchScope) -> Finding | None: ...

    @abstractmethod
    def watch(self) -> Watch: ...
