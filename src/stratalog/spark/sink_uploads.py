"""Uploads of blocks to the object store, while the task makes the next blocks.

Spark hands rows over in a plain loop, and the stores are asynchronous: a thread with an event loop
connects them. Few uploads are in progress at once, so that a task's memory is bounded.
"""

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from stratalog.block.block import SealedBlock
from stratalog.control.log.model import BlockToCommit
from stratalog.objects.store import ObjectStore

_MAX_UNDER_WAY = 2


class Uploads:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="sink-uploads", daemon=True
        )
        self._under_way: deque[Future[str]] = deque()
        self._blocks: list[BlockToCommit] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def add(self, block: SealedBlock) -> None:
        """Begin an upload. Waits for an earlier one if too many are in progress."""
        while len(self._under_way) >= _MAX_UNDER_WAY:
            self._under_way.popleft().result()
        # A plain put may overwrite: only this task uses the key, always with the same bytes.
        upload = self._store.put(block.commit.key, block.parts)
        self._under_way.append(asyncio.run_coroutine_threadsafe(upload, self._loop))
        self._blocks.append(block.commit)

    def finish(self) -> list[BlockToCommit]:
        """Wait until all blocks are durable. Returns them in the order in which they were added."""
        while self._under_way:
            self._under_way.popleft().result()
        return self._blocks

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Cancel the uploads in progress. The sweeper takes the objects that they leave."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._store.close()
