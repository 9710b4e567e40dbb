"""Objects that a janitor must not take for garbage.

A block of another cluster has no row here. The objects that a backup names lose their rows.
"""

import asyncio
from random import Random

from tests.simulation.clients import Clients
from tests.simulation.database import MemoryDatabase

from stratalog.block.keys import block_key
from stratalog.ids import ObjectId, WriterTag, tagged_uuid7
from stratalog.objects.store import ObjectStore
from stratalog.opening.marker import read_marker

BACKUP_WINDOW_MS = 3000
_BACKUP_SEEDS = 0.15
"""The part of the seeds with backups, whose window keeps the janitor from its work."""
_HOUR_MS = 3_600_000
_KEYS = "SELECT DISTINCT objects.key FROM batches JOIN objects USING (object_id) ORDER BY 1"


class Stranger:
    """Puts an old block into the store whose writer was never announced to this cluster."""

    def __init__(self, clients: Clients, store: ObjectStore, seed: int) -> None:
        self._clients = clients
        self._store = store
        entropy = Random(f"{seed} stranger").randbytes
        tag = WriterTag(int.from_bytes(entropy(5)))
        object_id = tagged_uuid7(clients.clock_ms() - _HOUR_MS, tag, entropy)
        self.key = block_key(ObjectId(object_id))

    async def run(self) -> None:
        # The first claim needs an empty store.
        while not self._clients.is_over and await read_marker(self._store) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await self._store.put(self.key, [b"a block of another cluster"])


class Backup:
    """Takes the names of all objects with rows, and looks for them when the window is over."""

    def __init__(self, clients: Clients, database: MemoryDatabase, store: ObjectStore) -> None:
        self._clients = clients
        self._database = database
        self._store = store

    async def run(self) -> None:
        while not self._clients.is_over:
            await asyncio.sleep(0.7)
            if self._clients.turns % 2:
                continue
            keys = [key for (key,) in self._database.raw.execute(_KEYS).fetchall()]
            await asyncio.sleep(BACKUP_WINDOW_MS / 1000)
            there = {info.key async for info in self._store.list("")}
            self._clients.violations += [
                f"backup: {key} was deleted before the window was over"
                for key in keys
                if key not in there
            ]


def draw_backups(seed: int) -> bool:
    return Random(f"{seed} backups").random() < _BACKUP_SEEDS
