"""Holders of leases: a scan, whose snapshot must stay readable, and a slow writer of blocks."""

from tests.simulation.clients import Clients
from tests.simulation.surroundings import Surroundings
from tests.support.writers import announced_id

from stratalog.block.keys import block_key
from stratalog.clock import Clock
from stratalog.control.scans.model import ScanSnapshot, ScanWish
from stratalog.control.topics.model import Topic
from stratalog.errors import StratalogError
from stratalog.ids import ObjectId, PartitionIndex, TopicPartition
from stratalog.segment.keys import LOG_SUFFIX

_LEASE_MS = 9000


class Scanner:
    """Takes a snapshot, reads it much later, and gives its lease back or forgets to."""

    def __init__(self, clients: Clients, around: Surroundings, topics: list[Topic]) -> None:
        self._clients = clients
        self._around = around
        self._control = around.control_for(clients.process)
        self._wishes = [
            ScanWish(TopicPartition(topic.id, PartitionIndex(partition)))
            for topic in topics
            for partition in range(topic.partition_count)
        ]

    async def run(self) -> None:
        while not self._clients.is_over:
            await self._clients.pause(0.5)
            try:
                await self._scan()
            except StratalogError:
                continue

    async def _scan(self) -> None:
        snapshot = await self._control.scans.take_snapshot(
            self._wishes, holder="scanner", duration_ms=_LEASE_MS
        )
        await self._clients.process.clock.sleep(self._clients.random.uniform(1.0, 5.0))
        for key in _keys(snapshot):
            if not self._around.holds(key):
                self._clients.violations.append(f"lease-broken: {key} was deleted under a scan")
        if self._clients.random.random() < 0.5:
            await self._control.scans.release_lease(snapshot.lease.lease_id)


def _keys(snapshot: ScanSnapshot) -> set[str]:
    parts = [part for part in snapshot.partitions if part is not None]
    rows = {row.object_key for part in parts for row in part.rows}
    return rows | {one.key_base + LOG_SUFFIX for part in parts for one in part.segments}


class SlowWriter:
    """Uploads a block under a lease, as Spark does, and is in no hurry to commit it."""

    def __init__(self, clients: Clients, around: Surroundings, clock: Clock) -> None:
        self._clients = clients
        self._around = around
        self._clock = clock
        self._control = around.control_for(clients.process)
        self._store = around.store_for(clients.process)

    async def run(self) -> None:
        while not self._clients.is_over:
            await self._clients.pause(0.5)
            try:
                await self._write()
            except StratalogError:
                continue

    async def _write(self) -> None:
        asked_s = self._clock.monotonic()
        await self._control.scans.take_lease("slow writer", duration_ms=_LEASE_MS)
        object_id = await announced_id(
            self._control, self._clock.now_ms(), self._clients.random.randbytes
        )
        key = block_key(ObjectId(object_id))
        await self._store.put(key, [b"a block that is never committed"])
        await self._clock.sleep(7.0)
        # A store may hang for so long that the lease ends before the look.
        lasts = self._clock.monotonic() - asked_s < _LEASE_MS / 1000
        if lasts and not self._around.holds(key):
            self._clients.violations.append(f"lease-broken: {key} was swept under its writer")
