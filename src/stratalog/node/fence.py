"""The fence of a node: why it may not write any more, if so.

A node is fenced when the control plane turns out to have gone back, when the cluster is halted, or
when its store is replaced by another one. From then on every write that it acknowledged could be
lost. So its writers refuse all batches at once, and the program that runs the node ends it, with an
error: only an operator can tell which control plane and which store are the right ones.
"""

import asyncio
from collections.abc import Callable

from stratalog.errors import StratalogError


class Fence:
    def __init__(self) -> None:
        self._closed = asyncio.Event()
        self._writers: list[Callable[[str], None]] = []
        self.error: StratalogError | None = None

    def guard(self, stop_writing: Callable[[str], None]) -> None:
        """Have this called with the reason when the node is fenced."""
        self._writers.append(stop_writing)

    def close(self, error: StratalogError) -> None:
        """Fence the node. The first error stays."""
        if self.error is None:
            self.error = error
            for stop_writing in self._writers:
                stop_writing(str(error))
            self._closed.set()

    async def closed(self) -> None:
        """Wait until the node is fenced."""
        await self._closed.wait()
