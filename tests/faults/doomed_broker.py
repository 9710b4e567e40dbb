"""A broker that ends its own process, without warning, at a given point of its work.

Run as a program: it reads one line of JSON (see `Doomed`) from its input, starts, and prints
"ready". From SIGUSR1 on it is doomed.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import uvloop
from tests.support.faulty_control import Answers
from tests.support.ledgers import ControlWrapper

from stratalog.clock import SystemClock
from stratalog.control.log.model import BlockToCommit
from stratalog.control.open import open_database
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Connection, Database, Work
from stratalog.control.sql.migrate import migrate
from stratalog.control.writers.model import CommitCount
from stratalog.ids import ObjectId
from stratalog.node.broker import Broker
from stratalog.objects import folder_files
from stratalog.objects.durable_files import DurableFolders, write_parts
from stratalog.objects.faulty import FaultyStore, ScriptedFaults
from stratalog.objects.folder_files import FolderFiles
from stratalog.objects.open import open_store
from stratalog.objects.store import Buffer, ObjectStore, Overwrite, PutMode
from stratalog.settings import (
    BlockSettings,
    BrokerSettings,
    JanitorSettings,
    Settings,
    StorageSettings,
)

T = TypeVar("T")

WINDOW_MS = 23
"""A window of its own kind, by which the clock knows that a block is being collected. A moment of
it may have passed when the clock is asked."""


class Point(StrEnum):
    NEVER = "never"
    COLLECTING = "while a block collects batches"
    SEALED = "a block is sealed, its upload has not begun"
    HALF_WRITTEN = "half of the folder's temporary file is written"
    WRITTEN = "the folder's temporary file is written, the object not in place"
    PLACED = "the folder's object is in place, its entry not synced"
    UPLOADING = "the upload is under way"
    UPLOADED = "the upload is done, the commit has not begun"
    COMMITTING = "all statements of the commit are done, but COMMIT"
    COMMITTED = "the commit is done, nobody is answered"
    BARRED = "orphans are barred, not deleted"
    DELETED = "marked objects are deleted, not forgotten"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doomed:
    control: str
    objects: str
    port: int
    object_options: Mapping[str, str] = field(default_factory=dict)
    broker_id: int = 0
    lease_ms: int = 10_000
    point: str = Point.NEVER
    at: int = 1
    """It dies when it reaches the point for this time after the signal."""
    janitor_ms: int = 0
    orphan_age_ms: int = 3_600_000

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @property
    def settings(self) -> Settings:
        return Settings(
            broker=BrokerSettings(
                listen=f"127.0.0.1:{self.port}", id=self.broker_id, lease_ms=self.lease_ms
            ),
            block=BlockSettings(
                window_ms=WINDOW_MS,
                # A block that is sealed early may be sealed by the request that opened it.
                requests_per_second=0 if self.point == Point.COLLECTING else None,
            ),
            storage=StorageSettings(
                control=self.control,
                objects=self.objects,
                object_options=dict(self.object_options),
            ),
            janitor=JanitorSettings(
                interval_ms=self.janitor_ms,
                grace_ms=0,
                backup_window_ms=0,
                deleted_topic_window_ms=0,
                orphan_age_ms=self.orphan_age_ms,
            ),
        )

    @property
    def harmless(self) -> "Doomed":
        """The same broker, which lives on and leaves the store alone."""
        return replace(self, point=Point.NEVER, janitor_ms=0)


class Doom:
    def __init__(self, point: Point, at: int) -> None:
        self.point = point
        self.sealed = False
        self._left = at

    def seal(self) -> None:
        self.sealed = True

    def reached(self, point: Point) -> None:
        if self.sealed and point is self.point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class DoomedClock(SystemClock):
    def __init__(self, doom: Doom) -> None:
        self._doom = doom

    async def sleep(self, seconds: float) -> None:
        if WINDOW_MS - 1 < seconds * 1000 <= WINDOW_MS:
            await super().sleep(seconds / 2)
            self._doom.reached(Point.COLLECTING)
            seconds /= 2
        await super().sleep(seconds)


class DoomedStore(FaultyStore):
    def __init__(self, inner: ObjectStore, doom: Doom) -> None:
        super().__init__(inner, ScriptedFaults([]), clock=SystemClock())
        self._doom = doom

    async def put(
        self,
        key: str,
        parts: Sequence[Buffer],
        *,
        mode: PutMode = Overwrite(),  # noqa: B008 - immutable
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        if not key.startswith("blocks/"):
            return await super().put(key, parts, mode=mode, metadata=metadata)
        self._doom.reached(Point.SEALED)
        upload = asyncio.ensure_future(super().put(key, parts, mode=mode, metadata=metadata))
        if self._doom.sealed and self._doom.point is Point.UPLOADING:
            # Long enough for the request to leave, and short enough for no answer to be read.
            await asyncio.sleep(0.001)
            self._doom.reached(Point.UPLOADING)
        etag = await upload
        self._doom.reached(Point.UPLOADED)
        return etag


class DoomedDatabase:
    """Dies inside a transaction, once the next transaction is announced as a commit of blocks."""

    def __init__(self, inner: Database, doom: Doom) -> None:
        self._inner = inner
        self._doom = doom
        self.commits = False

    @property
    def url(self) -> str:
        return self._inner.url

    async def read(self, work: Work[T]) -> T:
        return await self._inner.read(work)

    async def write(self, work: Work[T]) -> T:
        commits, self.commits = self.commits, False

        async def watched(connection: Connection) -> T:
            result = await work(connection)
            if commits:
                self._doom.reached(Point.COMMITTING)
            return result

        return await self._inner.write(watched)

    async def close(self) -> None:
        await self._inner.close()


class DoomedControl(ControlWrapper):
    def __init__(self, inner: ControlPlane, database: DoomedDatabase, doom: Doom) -> None:
        super().__init__(inner)
        self._doomed = database
        self._doom = doom

    async def log_commit_blocks(
        self, blocks: Sequence[BlockToCommit], count: CommitCount | None = None
    ) -> Answers:
        self._doomed.commits = True
        answers = await self.inner.log.commit_blocks(blocks, count)
        self._doom.reached(Point.COMMITTED)
        return answers

    async def objects_bar(self, objects: Mapping[ObjectId, str]) -> set[ObjectId]:
        barred = await self.inner.objects.bar(objects)
        if barred:
            self._doom.reached(Point.BARRED)
        return barred

    async def objects_forget(self, ids: Sequence[ObjectId]) -> None:
        self._doom.reached(Point.DELETED)
        await self.inner.objects.forget(ids)


def doom_folder(doom: Doom) -> None:
    """Stand in the doors between the steps of a folder's put."""
    place, sync_entry = FolderFiles._place_with_sidecar, DurableFolders.sync_entry

    def half_write(descriptor: int, parts: Sequence[Buffer]) -> None:
        whole = b"".join(parts)
        write_parts(descriptor, [whole[: len(whole) // 2]])
        if len(parts) > 1:  # A block: batches and their footer.
            doom.reached(Point.HALF_WRITTEN)
        write_parts(descriptor, [whole[len(whole) // 2 :]])

    def place_late(files: FolderFiles, temporary: Path, etag: str, key: str, *more: Any) -> str:
        if key.startswith("blocks/"):
            doom.reached(Point.WRITTEN)
        return place(files, temporary, etag, key, *more)

    def sync_late(folders: DurableFolders, file: Path) -> None:
        if "blocks" in file.parts:
            doom.reached(Point.PLACED)
        sync_entry(folders, file)

    doors: list[tuple[object, str, object]] = [
        (folder_files, "write_parts", half_write),
        (FolderFiles, "_place_with_sidecar", place_late),
        (DurableFolders, "sync_entry", sync_late),
    ]
    for owner, name, door in doors:
        setattr(owner, name, door)


async def open_doomed_control(url: str, doom: Doom) -> ControlPlane:
    database = await open_database(url)
    await migrate(database)
    doomed = DoomedDatabase(database, doom)
    plane = ControlPlane(doomed, os.urandom)
    await plane.identity.found()
    return DoomedControl(plane, doomed, doom)


async def serve(doomed: Doomed) -> None:
    doom = Doom(Point(doomed.point), doomed.at)
    doom_folder(doom)
    settings = doomed.settings
    store = open_store(settings.storage.objects, doomed.object_options, clock=SystemClock())
    broker = await Broker.start(
        settings,
        clock=DoomedClock(doom),
        store=DoomedStore(store, doom),
        control=await open_doomed_control(settings.storage.control, doom),
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, doom.seal)
    print("ready", flush=True)
    await stop.wait()
    await broker.stop()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    uvloop.run(partial(serve, Doomed(**json.loads(sys.stdin.readline())))())
