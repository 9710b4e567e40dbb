"""The check of one partition: its boundaries, segments and rows and, if deep, every batch.

The partition may change during the check. So every problem is checked a second time, and only a
problem that is still there is reported.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from stratalog.batch.header import BatchHeader
from stratalog.checks.object_batches import read_batches
from stratalog.checks.object_references import ObjectReferences
from stratalog.checks.promises import (
    batch_continues_row,
    batches_end_with_row,
    boundaries_hold,
    boundaries_moved_forward,
)
from stratalog.checks.record_check import record_fault
from stratalog.checks.remote_tier import RemoteTier
from stratalog.checks.report import Problem, Promise
from stratalog.checks.row_sequence import RowSequence
from stratalog.checks.segment_chain import SegmentChain
from stratalog.checks.segment_check import SegmentCheck, chained_segments
from stratalog.checks.segment_promises import epochs_rise, migration_holds, sizes_add_up
from stratalog.control.log.model import Coordinates, PartitionState
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.model import EpochStart
from stratalog.errors import DamagedError
from stratalog.ids import Offset, TopicPartition
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import ObjectStore

_PAGE_ROWS = 500
_PARALLEL_READS = 8


async def find_row(
    control: ControlPlane, partition: TopicPartition, base_offset: Offset
) -> Coordinates | None:
    """Return the row that begins at this offset, if there is one now."""
    rows = await control.log.all_coordinates(partition, after=Offset(base_offset - 1), limit=1)
    return rows[0] if rows and rows[0].base_offset == base_offset else None


@dataclass(slots=True)
class _Rows:
    sequence: RowSequence
    size_bytes: int = 0
    """The size of the rows that are served."""


class PartitionCheck:
    def __init__(
        self,
        control: ControlPlane,
        store: ObjectStore,
        tier: RemoteTier,
        references: ObjectReferences,
        counts: Counter[str],
        *,
        deep: bool,
    ) -> None:
        self._control = control
        self._store = store
        self._segments = SegmentCheck(control.segments, control.lost, tier, counts, deep=deep)
        self._references = references
        self._counts = counts
        self._deep = deep
        self._reading = asyncio.Semaphore(_PARALLEL_READS)

    async def run(self, state: PartitionState) -> list[Problem]:
        """Return the problems of a partition that are still there at the second look."""
        problems: list[Problem] = []
        if await self._look(state, problems):
            again = await self._control.log.partitions([state.topic_partition])
            for fresh in again.values():
                problems += await self._look(fresh, None)
        return problems

    async def _look(
        self, before: PartitionState, byte_problems: list[Problem] | None
    ) -> list[Problem]:
        """Return problems of boundaries, segments and rows.

        The first look also counts, and adds problems of objects to `byte_problems`.
        """
        partition = before.topic_partition
        epochs = await self._control.log.epochs(partition)
        segments = await self._check_segments(before, epochs, byte_problems)
        rows = await self._check_rows(before, segments, byte_problems)
        after = (await self._control.log.partitions([partition])).get(partition)
        if after is None:
            return []
        problems = [
            # The same damage would break both promises, and be reported twice.
            *(boundaries_hold(after) or migration_holds(after)),
            *boundaries_moved_forward(before, after),
            *epochs_rise(before, epochs, after),
            *segments.finish(after),
            *rows.sequence.finish(after),
        ]
        if before == after:
            problems += sizes_add_up(after, segments.size_bytes, rows.size_bytes)
        return problems

    async def _check_segments(
        self,
        before: PartitionState,
        epochs: Sequence[EpochStart],
        byte_problems: list[Problem] | None,
    ) -> SegmentChain:
        chain = SegmentChain(before, epochs)
        async for page in chained_segments(self._control.segments, before.topic_partition):
            for segment in page:
                chain.step(segment)
            if byte_problems is not None:
                byte_problems += await self._segments.run(page)
        return chain

    async def _check_rows(
        self,
        before: PartitionState,
        segments: SegmentChain,
        byte_problems: list[Problem] | None,
    ) -> _Rows:
        rows = _Rows(RowSequence(before))
        async for page in self._pages(before.topic_partition):
            self._references.add(page)
            for row in page:
                rows.sequence.step(row)
                if row.last_offset >= before.block_start:
                    segments.meet(row)
                    rows.size_bytes += row.byte_size
            if byte_problems is not None:
                self._counts["rows"] += len(page)
                byte_problems += await self._check_bytes(page)
        return rows

    async def _pages(self, partition: TopicPartition) -> AsyncIterator[list[Coordinates]]:
        after = None
        while page := await self._control.log.all_coordinates(
            partition, after=after, limit=_PAGE_ROWS
        ):
            yield page
            after = page[-1].last_offset

    async def _check_bytes(self, rows: Sequence[Coordinates]) -> list[Problem]:
        if not self._deep:
            return []
        answers = await asyncio.gather(*(self._check_row(row) for row in rows))
        return [problem for answer in answers for problem in answer]

    async def _check_row(self, row: Coordinates) -> list[Problem]:
        async with self._reading:
            if not await self._read_row(row):
                return []
            partition = TopicPartition(row.topic_id, row.partition)
            if await find_row(self._control, partition, row.base_offset) != row:
                return []
            return await self._read_row(row)

    async def _is_noted(self, row: Coordinates, header: BatchHeader) -> bool:
        """Tell if the offsets of a batch without records are noted as lost."""
        return any(
            lost.partition == row.partition
            and lost.first_offset <= header.base_offset
            and header.last_offset < lost.end_offset
            for lost in await self._control.lost.of_topic(row.topic_id)
        )

    async def _read_row(self, row: Coordinates) -> list[Problem]:
        undecodable: list[Problem] = []
        expected = row.base_offset
        end = row.byte_offset + row.byte_size
        try:
            async for _, header, batch in read_batches(
                self._store, row.object_key, row.byte_offset, end
            ):
                problems = batch_continues_row(row, expected, header, batch)
                if problems:
                    return undecodable + problems
                if header.records_count == 0 and not await self._is_noted(row, header):
                    text = f"row {row.base_offset}: a batch without records at offset {expected}"
                    undecodable.append(Problem(promise=Promise.DENSE, text=text))
                fault = await record_fault(header, batch)
                if fault is not None:
                    text = f"row {row.base_offset}, batch at offset {expected}: {fault}"
                    undecodable.append(Problem(promise=Promise.READABLE, text=text))
                expected = Offset(expected + header.last_offset_delta + 1)
                self._counts["batches"] += 1
                self._counts["bytes"] += header.size_bytes
        except ObjectNotFoundError:
            text = f"row {row.base_offset}: object {row.object_key} is not in the store"
            return [Problem(promise=Promise.READABLE, text=text)]
        except DamagedError as error:
            text = f"row {row.base_offset}: object {row.object_key}: {error}"
            return [*undecodable, Problem(promise=Promise.CHECKSUMS, text=text)]
        return undecodable + batches_end_with_row(row, expected)
