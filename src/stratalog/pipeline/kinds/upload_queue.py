"""The queue between the reader of source objects and the upload of one segment."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from stratalog.control.log.model import Coordinates
from stratalog.errors import StratalogError
from stratalog.pipeline.kinds.source_reader import ReadBudget

PORTION_BYTES = 1024 * 1024
"""An upload is woken for so many bytes: to wake it for every row costs more than the row does."""


class UploadQueue:
    """Rows in order, with their bytes. The reader puts and never waits, the upload takes.

    The beginning of a portion does not count against the budget. Otherwise many queues, none of
    which has enough to wake its upload, could use up the budget together, and the reader would
    wait for ever.
    """

    def __init__(self, budget: ReadBudget, row_count: int, *, portion_bytes: int) -> None:
        self._budget = budget
        self._rows_missing = row_count
        self._portion_bytes = portion_bytes
        self._waiting: deque[tuple[Coordinates, memoryview]] = deque()
        self._waiting_bytes = 0
        self._budget_bytes = 0
        self._error: StratalogError | None = None
        self._woken = asyncio.Event()
        self.is_open = True

    def put(self, row: Coordinates, data: memoryview) -> None:
        if not self.is_open:
            self._budget.give_back(len(data))
            return
        self._waiting.append((row, data))
        self._waiting_bytes += len(data)
        self._rows_missing -= 1
        self._budget_bytes += len(data)
        if self._has_portion():
            self._woken.set()
        else:
            self._settle(self._budget_bytes)

    def fail(self, error: StratalogError) -> None:
        """Give the upload this error instead of anything more."""
        if self.is_open:
            self._error = self._error or error
            self.close()
            self._woken.set()

    def close(self) -> None:
        """Drop the rows that wait. No more are taken."""
        self.is_open = False
        self._waiting.clear()
        self._waiting_bytes = 0
        self._settle(self._budget_bytes)

    async def portions(self) -> AsyncIterator[list[tuple[Coordinates, memoryview]]]:
        """Yield the rows in portions, until all rows of the segment have come."""
        while self._waiting or self._rows_missing or self._error:
            await self._woken.wait()
            while self._has_portion():
                yield self._take()
            if self._error is not None:
                raise self._error
            if self._rows_missing:
                self._woken.clear()
                self._settle(self._budget_bytes)

    def _has_portion(self) -> bool:
        if self._rows_missing:
            return self._waiting_bytes >= self._portion_bytes
        return bool(self._waiting)

    def _take(self) -> list[tuple[Coordinates, memoryview]]:
        portion = [self._waiting.popleft()]
        size_bytes = len(portion[0][1])
        while self._waiting and size_bytes + len(self._waiting[0][1]) <= self._portion_bytes:
            portion.append(self._waiting.popleft())
            size_bytes += len(portion[-1][1])
        self._waiting_bytes -= size_bytes
        self._settle(min(size_bytes, self._budget_bytes))
        return portion

    def _settle(self, size_bytes: int) -> None:
        self._budget_bytes -= size_bytes
        self._budget.give_back(size_bytes)
