"""Checking one partition: its boundaries, its rows and, deep, every batch in them.

The partition may live while it is looked at. What was found is therefore looked at again, once,
and only what is still there is a problem.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence

from stratalog.checks.promises import (
    batch_continues_row,
    batches_end_with_row,
    boundaries_hold,
    boundaries_moved_forward,
)
from stratalog.checks.references import References
from stratalog.checks.report import Problem, Promise
from stratalog.checks.rows import RowWalk
from stratalog.checks.walk import walk_batches
from stratalog.control.model import Coordinates, PartitionState
from stratalog.control.plane import ControlPlane
from stratalog.errors import DamagedError
from stratalog.ids import Offset, TopicPartition
from stratalog.objects.store import ObjectNotFoundError, ObjectStore

_PAGE_ROWS = 500
_PARALLEL_READS = 8


async def find_row(
    control: ControlPlane, partition: TopicPartition, base_offset: Offset
) -> Coordinates | None:
    """The row that begins at this offset, if there is one now."""
    rows = await control.all_coordinates(partition, after=Offset(base_offset - 1), limit=1)
    return rows[0] if rows and rows[0].base_offset == base_offset else None


class PartitionCheck:
    def __init__(
        self,
        control: ControlPlane,
        store: ObjectStore,
        references: References,
        counts: Counter[str],
        *,
        deep: bool,
    ) -> None:
        self._control = control
        self._store = store
        self._references = references
        self._counts = counts
        self._deep = deep
        self._reading = asyncio.Semaphore(_PARALLEL_READS)

    async def run(self, state: PartitionState) -> list[Problem]:
        """The problems of a partition that are still there at the second look."""
        problems: list[Problem] = []
        if await self._look(state, problems):
            again = await self._control.partitions([state.topic_partition])
            for fresh in again.values():
                problems += await self._look(fresh, None)
        return problems

    async def _look(
        self, before: PartitionState, byte_problems: list[Problem] | None
    ) -> list[Problem]:
        """What is wrong with boundaries and rows. The first look counts and reads the bytes."""
        partition = before.topic_partition
        walk = RowWalk(before)
        async for page in self._pages(partition):
            self._references.add(page)
            for row in page:
                walk.step(row)
            if byte_problems is not None:
                self._counts["rows"] += len(page)
                byte_problems += await self._check_bytes(page)
        after = (await self._control.partitions([partition])).get(partition)
        if after is None:
            return []
        return [
            *boundaries_hold(after),
            *boundaries_moved_forward(before, after),
            *walk.finish(after),
        ]

    async def _pages(self, partition: TopicPartition) -> AsyncIterator[list[Coordinates]]:
        after = None
        while page := await self._control.all_coordinates(partition, after=after, limit=_PAGE_ROWS):
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

    async def _read_row(self, row: Coordinates) -> list[Problem]:
        expected = row.base_offset
        end = row.byte_offset + row.byte_size
        try:
            async for _, header, batch in walk_batches(
                self._store, row.object_key, row.byte_offset, end
            ):
                problems = batch_continues_row(row, expected, header, batch)
                if problems:
                    return problems
                expected = Offset(expected + header.last_offset_delta + 1)
                self._counts["batches"] += 1
                self._counts["bytes"] += header.size_bytes
        except ObjectNotFoundError:
            what = f"row {row.base_offset}: object {row.object_key} is not in the store"
            return [Problem(promise=Promise.READABLE, what=what)]
        except DamagedError as error:
            what = f"row {row.base_offset}: object {row.object_key}: {error}"
            return [Problem(promise=Promise.CHECKSUMS, what=what)]
        return batches_end_with_row(row, expected)
