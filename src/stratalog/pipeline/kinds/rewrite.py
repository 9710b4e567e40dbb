"""The rewrite: the last live rows move out of mostly dead objects, so that the objects can go.

A rewrite writes split files, as a split does. It differs in the search for its rows, and in the way
it takes failures: a row that cannot be moved says something about its object, and nothing about the
conversion of its partition. The rows beside it are moved all the same.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from stratalog.control.pipeline.model import Claim, ClaimWish, UnitKind
from stratalog.errors import StratalogError
from stratalog.ids import ObjectId, Offset, TopicId
from stratalog.pipeline.kinds.committer import CommitContext
from stratalog.pipeline.kinds.kind import Finding, KindCost, SearchKind, SearchScope
from stratalog.pipeline.kinds.rewrite_search import Rewrites, RewriteWatch, find_rewrites
from stratalog.pipeline.kinds.split import (
    SplitCommitter,
    count_partitions,
    rows_kept,
    write_requests,
)
from stratalog.pipeline.kinds.split_model import SplitPlan
from stratalog.pipeline.kinds.split_plan import plan_files
from stratalog.pipeline.kinds.split_task import run_split
from stratalog.pipeline.plan.claimed_rows import ClaimedRows
from stratalog.pipeline.plan.selection import Reason
from stratalog.pipeline.plan.tasks import Task, TaskDone
from stratalog.pipeline.report import counted
from stratalog.pipeline.topic_facts import TopicFacts
from stratalog.pipeline.workplace import OpenWorkplace
from stratalog.settings import TieringSettings

REWRITE = "rewrite"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteTask(Task):
    """One split file to be written, with the rows of mostly dead objects."""

    kind: ClassVar[str] = REWRITE
    parts: Sequence[SplitPlan]


class RewriteKind(SearchKind[RewriteTask]):
    name: ClassVar[str] = REWRITE
    unit_kind: ClassVar[UnitKind] = UnitKind.SPLIT
    counts_attempts: ClassVar[bool] = False
    claims_parked: ClassVar[bool] = True
    search_failed: ClassVar[str] = (
        "Objects that are mostly dead were not looked for, and stay until it works: %s"
    )

    async def search(self, scope: SearchScope) -> "FoundRewrites | None":
        found = await find_rewrites(scope)
        return FoundRewrites(found, scope) if found else None

    def watch(self) -> RewriteWatch:
        return RewriteWatch()

    async def run(self, task: RewriteTask, place: OpenWorkplace) -> TaskDone:
        return await run_split(task.parts, place, salvages=True)

    def committer(self, context: CommitContext) -> SplitCommitter[RewriteTask]:
        return SplitCommitter(context)

    def cost(self, tasks: Sequence[RewriteTask]) -> KindCost:
        files = [task.parts for task in tasks]
        partitions = count_partitions(files)
        return KindCost(
            figures={"rewritten_partitions": partitions, "rewritten_files": len(files)},
            line=f"rewrite {counted(partitions, 'partition')} into {counted(len(files), 'file')},"
            " out of objects that are mostly dead",
            write_requests=write_requests(files),
            rows_kept=rows_kept(files),
        )


class FoundRewrites(Finding):
    def __init__(self, rewrites: Rewrites, scope: SearchScope) -> None:
        self._rewrites = rewrites
        self._scope = scope

    @property
    def wishes(self) -> list[ClaimWish]:
        return [
            ClaimWish(
                partition=partition,
                kind=UnitKind.SPLIT,
                first_offset=rows[0].base_offset,
                end_offset=Offset(rows[-1].last_offset + 1),
            )
            for partition, rows in self._rewrites.items()
        ]

    def plan(self, claims: Sequence[Claim]) -> list[RewriteTask]:
        claimed = [
            ClaimedRows(
                claim=claim, rows=self._rewrites[claim.partition], end_offset=claim.end_offset
            )
            for claim in claims
        ]
        return plan_rewrites(claimed, self._scope.topics, self._scope.settings)

    async def conclude(self, claims: Sequence[Claim], stuck: Collection[ObjectId]) -> None:
        """Note the stuck objects, so that the next runs leave them alone for some time."""
        given_up = {*stuck, *self._objects_refused(claims)}
        if given_up:
            # An object that is not noted is found to be stuck again by the next run.
            with suppress(StratalogError):
                await self._scope.control.pipeline.note_stuck(sorted(given_up))

    def _objects_refused(self, claims: Sequence[Claim]) -> set[ObjectId]:
        """Return the objects of parked partitions that not even a rewrite may claim any more."""
        waiting = self._scope.selection.waiting
        parked = {one.topic_partition for one in waiting.get(Reason.PARKED, ())}
        refused = (self._rewrites.keys() & parked) - {claim.partition for claim in claims}
        return {row.object_id for partition in refused for row in self._rewrites[partition]}


def plan_rewrites(
    claimed: Sequence[ClaimedRows],
    topics: Mapping[TopicId, TopicFacts],
    settings: TieringSettings,
) -> list[RewriteTask]:
    """Move all the rows, into as few files as hold them."""
    return [RewriteTask(parts=parts) for parts in plan_files(claimed, topics, settings)]
