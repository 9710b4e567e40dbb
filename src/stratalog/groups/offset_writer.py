"""The writer of committed offsets. Commits of all groups that arrive while a transaction is running
share the next transaction, in the order of their arrival."""

import asyncio
import logging
from typing import NamedTuple

from stratalog.control.groups.model import GroupOffsets, LeftOut
from stratalog.control.plane import ControlPlane
from stratalog.errors import StratalogError

log = logging.getLogger(__name__)

MAX_ROWS = 10_000
"""Offsets in one transaction. Larger transactions are not faster."""


class _Waiting(NamedTuple):
    commit: GroupOffsets
    done: "asyncio.Future[LeftOut | None]"


class OffsetWriter:
    def __init__(self, control: ControlPlane) -> None:
        self._control = control
        self._waiting: list[_Waiting] = []
        self._writing: asyncio.Task[None] | None = None

    async def commit(self, commit: GroupOffsets) -> LeftOut | None:
        """Write offsets. On return they are durable, except for the ones that were left out, which
        are returned. None if the group's term is over."""
        done: asyncio.Future[LeftOut | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(commit, done))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all(), name="offset-commits")
        return await done

    async def close(self) -> None:
        """Wait until all commits are written."""
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                await self._write(self._next_batch())
        finally:
            self._writing = None
            # There are waiting commits only if this task was cancelled. No client must wait for
            # ever.
            for waiting in self._waiting:
                waiting.done.cancel()
            self._waiting.clear()

    def _next_batch(self) -> list[_Waiting]:
        rows = 0
        for end, waiting in enumerate(self._waiting):
            rows += len(waiting.commit.offsets)
            if rows > MAX_ROWS and end:
                break
        else:
            end = len(self._waiting)
        batch, self._waiting = self._waiting[:end], self._waiting[end:]
        return batch

    async def _write(self, batch: list[_Waiting]) -> None:
        try:
            answers = await self._control.groups.commit_offsets([each.commit for each in batch])
        except StratalogError as error:
            _fail(batch, error)
        except Exception as error:
            if len(batch) == 1:
                _fail(batch, error)
                return
            # One of the commits is more than the database can take. The others must not fail with
            # it.
            log.warning("Offsets are committed one by one, because together they failed: %r", error)
            for each in batch:
                await self._write([each])
        else:
            for each, answer in zip(batch, answers, strict=True):
                if not each.done.done():
                    each.done.set_result(answer)


def _fail(batch: list[_Waiting], error: Exception) -> None:
    for each in batch:
        if not each.done.done():
            each.done.set_exception(error)
