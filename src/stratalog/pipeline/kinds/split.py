"""The split: scattered rows of many partitions move together into split files.

Partitions that are too small for a segment wait for more, and must not have too many rows
meanwhile. As soon as one has, all partitions with small rows are split together: their rows lie in
the same blocks, which are then read once for all of them, and need not be kept for any of them. The
price is one more copy of few bytes.
"""

import logging
from collections.abc import Sequence
from typing import ClassVar

from stratalog.control.objects.errors import BarredObjectError
from stratalog.control.pipeline.model import (
    SplitOutcome,
    SplitPart,
    SplitToCommit,
    UnitKind,
)
from stratalog.errors import OutcomeUnknownError, RetriableError
from stratalog.objects.upload import put_requests
from stratalog.pipeline.errors import UploadGoneError
from stratalog.pipeline.kinds.committer import CommitContext, Committer, TaskT
from stratalog.pipeline.kinds.kind import AgedKind, ClaimedWork, KindCost
from stratalog.pipeline.kinds.split_model import SPLIT, SplitMade, SplitPlan, SplitTask
from stratalog.pipeline.kinds.split_plan import has_small_rows, plan_splits, rows_needed
from stratalog.pipeline.kinds.split_task import run_split
from stratalog.pipeline.kinds.upload_check import check_uploaded
from stratalog.pipeline.plan.selection import Candidate
from stratalog.pipeline.plan.tasks import TaskDone
from stratalog.pipeline.report import counted
from stratalog.pipeline.units import Unit
from stratalog.pipeline.workplace import OpenWorkplace
from stratalog.retry import AT_ONCE, retry

log = logging.getLogger(__name__)

_COMMIT_ATTEMPTS = 5
_FILE_REQUESTS = 1
"""Beside the file: a look at it."""


class SplitKind(AgedKind[SplitTask]):
    name: ClassVar[str] = SPLIT
    unit_kind: ClassVar[UnitKind] = UnitKind.SPLIT

    def wants(self, candidate: Candidate) -> bool:
        return has_small_rows(candidate.partition.rows, candidate.partition.bytes)

    def is_worth_starting(self, wanted: Sequence[Candidate]) -> bool:
        return any(candidate.has_too_many_rows for candidate in wanted)

    def plan(self, work: ClaimedWork) -> list[SplitTask]:
        return plan_splits(work.claimed, work.topics, work.settings)

    async def run(self, task: SplitTask, place: OpenWorkplace) -> TaskDone:
        return await run_split(task.parts, place)

    def committer(self, context: CommitContext) -> "SplitCommitter[SplitTask]":
        return SplitCommitter(context)

    def cost(self, tasks: Sequence[SplitTask]) -> KindCost:
        files = [task.parts for task in tasks]
        partitions = count_partitions(files)
        return KindCost(
            figures={"split_partitions": partitions, "split_files": len(files)},
            line=f"split   {counted(partitions, 'partition')} into {counted(len(files), 'file')}",
            write_requests=write_requests(files),
            rows_kept=rows_kept(files),
        )


def count_partitions(files: Sequence[Sequence[SplitPlan]]) -> int:
    return len({part.token for parts in files for part in parts})


def write_requests(files: Sequence[Sequence[SplitPlan]]) -> int:
    sizes = [sum(row.byte_size for part in parts for row in part.rows) for parts in files]
    return sum(put_requests(size_bytes) + _FILE_REQUESTS for size_bytes in sizes)


def rows_kept(files: Sequence[Sequence[SplitPlan]]) -> int:
    return sum(rows_needed(part.rows) for parts in files for part in parts)


class SplitCommitter(Committer[TaskT]):
    """Swaps the rows of partitions for the rows of a split file.

    The parts of a file depend on nothing else of their partitions, so that neither failures nor
    changed rows elsewhere matter to them.
    """

    async def commit(self, answer: TaskDone) -> None:
        files: Sequence[SplitMade] = answer.made
        for file in files:
            await self._commit_file(file)

    def settled(self, unit: Unit) -> None:
        self.report.split_partitions += bool(unit.commits)

    async def _commit_file(self, file: SplitMade) -> None:
        try:
            # The look comes first: once rows point at the file, the objects that they pointed at
            # before are deleted.
            await check_uploaded(self.context.objects, file.key, file.size_bytes)
            outcomes = await self._swap(file)
        except BarredObjectError:
            outcomes = [SplitOutcome.ROWS_CHANGED] * len(file.parts)
        except Exception as error:
            self._note_error(file, error)
            return
        self.report.split_files += SplitOutcome.SWAPPED in outcomes
        for part, outcome in zip(file.parts, outcomes, strict=True):
            unit = self.units[part.token]
            if outcome is SplitOutcome.SWAPPED:
                unit.commits += 1
                self.report.split_bytes += sum(row.byte_size for row in part.new_rows)
                self.report.rows_removed += len(part.old_rows) - len(part.new_rows)
            elif outcome is SplitOutcome.CLAIM_LOST:
                unit.lose()
            else:
                unit.overtaken = True

    def _note_error(self, file: SplitMade, error: Exception) -> None:
        for part in file.parts:
            self.units[part.token].note_error(error)
        if isinstance(error, UploadGoneError):
            old_rows = [row for part in file.parts for row in part.old_rows]
            self.context.stuck.update(row.object_id for row in old_rows)

    async def _swap(self, file: SplitMade) -> list[SplitOutcome]:
        """Commit a split file. To repeat that is harmless, so doubt is settled by repeating it."""
        commit = SplitToCommit(
            object_id=file.object_id,
            key=file.key,
            size_bytes=file.size_bytes,
            parts=[
                SplitPart(token=part.token, old_rows=part.old_rows, new_rows=part.new_rows)
                for part in file.parts
            ],
        )
        return await retry(
            lambda: self.context.control.pipeline.commit_split(commit),
            clock=self.context.clock,
            failures=(RetriableError, OutcomeUnknownError),
            backoff=AT_ONCE,
            attempts=_COMMIT_ATTEMPTS,
            on_retry=lambda error, _: log.info("A split file is committed again: %s", error),
        )
