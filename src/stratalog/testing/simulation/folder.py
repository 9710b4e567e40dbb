"""The real folder store on virtual time, beside processes that die while they write a file.

A put of the folder store writes a temporary file first. A process that dies in the middle leaves
that file torn. No reader may ever see it, and the next process that opens the folder removes it.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from stratalog.clock import Clock
from stratalog.objects.folder import FolderStore
from stratalog.objects.store import Buffer, Overwrite, PutMode
from stratalog.objects.wrapped import WrappedStore
from stratalog.testing.simulation.clock import NodeClock


class SimulatedFolder(WrappedStore):
    def __init__(self, root: Path, clock: Clock, random: Random, *, torn: float) -> None:
        """`torn`: how often a put leaves a torn file of a process that died."""
        super().__init__(FolderStore(root, clock=clock, entropy=random.randbytes))
        self._root = root
        self._temporaries = root / ".stratalog" / "tmp"
        self._clock = clock
        self._random = random
        self._torn = torn
        self.torn_files = 0

    def holds(self, key: str) -> bool:
        return (self._root / key).exists()

    async def leftovers_after(self, *, days: int) -> list[str]:
        """Open the folder again, so many days later, and return the torn files that are left."""
        clock = NodeClock(start_ms=self._clock.now_ms() + days * 86_400_000)
        await FolderStore(self._root, clock=clock, entropy=self._random.randbytes).close()
        return [f"torn file: {path.name} is left" for path in self._temporaries.iterdir()]

    async def put(
        self,
        key: str,
        parts: Sequence[Buffer],
        *,
        mode: PutMode = Overwrite(),  # noqa: B008 - immutable
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        if self._random.random() < self._torn:
            self._tear(b"".join(parts))
        etag = await super().put(key, parts, mode=mode, metadata=metadata)
        if not isinstance(mode, Overwrite):
            # The marker, which is never swept. A new date would change its ETag.
            return etag
        self._date(self._root / key)
        return (await self.head(key)).etag

    def _tear(self, data: bytes) -> None:
        self.torn_files += 1
        path = self._temporaries / self._random.randbytes(16).hex()
        path.write_bytes(data[: self._random.randrange(len(data) + 1)])
        self._date(path)

    def _date(self, path: Path) -> None:
        """Give the file the virtual time: sweepers go by it."""
        now_ns = self._clock.now_ms() * 1_000_000
        os.utime(path, ns=(now_ns, now_ns))
