"""The state of the store and the control plane after a crash, and the cleaning that follows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from tests.support.writers import announced_id
from tests.unit.block.entries import entry

from stratalog.block.block import OpenBlock, SealedBlock, seal
from stratalog.checks.fsck import run_fsck
from stratalog.clock import SystemClock
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.ids import BrokerId, ObjectId
from stratalog.janitor.retention import Retention
from stratalog.janitor.service import Janitor
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.settings import JanitorSettings, StorageSettings


class Ground(NamedTuple):
    """The store and the control plane, seen without a broker."""

    control: ControlPlane
    store: ObjectStore

    async def blocks(self) -> set[str]:
        return {info.key async for info in self.store.list("blocks/")}

    async def orphans(self) -> set[str]:
        """Objects that no row knows."""
        rows = await self.control.objects.all(limit=1_000_000)
        return await self.blocks() - {row.key for row in rows}

    async def upload(self, topic: Topic) -> SealedBlock:
        """Put a block of one batch, and do not commit it."""
        block = OpenBlock()
        block.add([entry(0, topic_id=topic.id, records=3)])
        now_ms = SystemClock().now_ms()
        sealed = seal(
            block,
            object_id=ObjectId(await announced_id(self.control, now_ms)),
            broker_id=BrokerId(0),
            created_ms=now_ms,
        )
        await self.store.put(sealed.commit.key, sealed.parts)
        return sealed

    async def clean(self) -> None:
        """Run a janitor for which everything is old enough."""
        janitor = Janitor(
            control=self.control,
            store=self.store,
            retention_of=lambda topic: Retention(ms=None, bytes=None),
            settings=JanitorSettings(
                grace_ms=0, backup_window_ms=0, deleted_topic_window_ms=0, orphan_age_ms=0
            ),
            offsets_retention_ms=1000,
            clock=SystemClock(),
        )
        outcomes = await janitor.run_once()
        assert [outcome.error for outcome in outcomes if outcome.error] == []

    async def check(self) -> None:
        """Every promise is kept, and nothing is wasted."""
        report = await run_fsck(self.control, self.store, deep=True, orphan_age_ms=0)
        assert [str(finding) for finding in report.findings] == []
        assert report.counts["batches"] > 0, "there was something to check"


@asynccontextmanager
async def standing_on(storage: StorageSettings) -> AsyncIterator[Ground]:
    control = await open_control_plane(storage.control)
    store = open_store(storage.objects, storage.object_options, clock=SystemClock())
    try:
        yield Ground(control, store)
    finally:
        await store.close()
        await control.close()
