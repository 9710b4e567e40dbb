"""A broker, a pipeline, a sink and a janitor at work in one folder: the process that is recorded.

python -m tests.faults.power.workload <folder> <guard that is taken out, or "none"> <scope>
"""

import asyncio
import os
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.produce.v9.response import PartitionProduceResponse
from tests.faults.aftermath import Ground
from tests.faults.power.guards import Guard, take_out
from tests.faults.power.history import Notes, Scope
from tests.support.wire import Wire, batch_of, connected
from tests.unit.pipeline.lab import EAGER, PATIENT, Lab, using

from stratalog.batch.records import decode_records
from stratalog.control.topics.model import Topic
from stratalog.settings import (
    BlockSettings,
    BrokerSettings,
    JanitorSettings,
    Settings,
    StorageSettings,
)
from stratalog.testing.broker import Broker

TOPIC = "orders"
GONE = "gone"
PARTITIONS = 2
PRODUCER = 7
MOST_TRIES = 50
LARGE_BYTES = 300_000
"""Enough for the writes that pass the page cache by."""


def batch(sequence: int, values: tuple[str, ...]) -> bytes:
    return batch_of(
        [value.encode() for value in values],
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=sequence,
    )


def settings_at(folder: Path) -> Settings:
    return Settings(
        broker=BrokerSettings(listen="127.0.0.1:0"),
        block=BlockSettings(window_ms=1),
        storage=StorageSettings(
            objects=f"file:{folder / 'objects'}",
            control=f"sqlite:{folder / 'state/plane/control.db'}",
        ),
        janitor=JanitorSettings(interval_ms=0, grace_ms=0, orphan_age_ms=0),
    )


class Work:
    def __init__(self, lab: Lab, wire: Wire, notes: Notes) -> None:
        self._lab = lab
        self._wire = wire
        self._notes = notes
        self._sequences = [0] * PARTITIONS
        self._count = 0

    async def stage(self, name: str, work: Callable[[], Awaitable[Any]]) -> None:
        self._notes.note("stage", name=name)
        await work()

    async def create(self, name: str) -> Topic:
        topic = await self._lab.topic(PARTITIONS, name, segment_bytes="600")
        self._notes.note("topic", name=name)
        return topic

    async def delete(self, topic: Topic) -> None:
        self._notes.note("deleting", name=topic.name)
        await self._lab.control.topics.delete(topic.id)
        self._notes.note("deleted", name=topic.name)

    async def produce(self, rounds: int, size_bytes: int = 0) -> None:
        for turn in range(rounds):
            partition = turn % PARTITIONS
            values = tuple(self._value(size_bytes) for _ in range(1 + turn % 3))
            sequence = self._sequences[partition]
            self._notes.note("sent", partition=partition, sequence=sequence, values=values)
            data = batch(sequence, values)
            answer = await self._send(data, partition)
            self._notes.note("acknowledged", base=answer.base_offset)
            self._sequences[partition] += len(values)

    async def _send(self, data: bytes, partition: int) -> PartitionProduceResponse:
        """Send as an idempotent producer does: the same batch again, as long as it is refused."""
        for _ in range(MOST_TRIES):
            answer = await asyncio.to_thread(self._wire.produce, TOPIC, data, partition=partition)
            if answer.error_code is ErrorCode.none:
                return answer
        raise AssertionError(f"refused {MOST_TRIES} times: {answer}")

    async def produce_to(self, topic: Topic) -> None:
        for partition in range(PARTITIONS):
            data = batch_of([b"soon gone"])
            await asyncio.to_thread(self._wire.produce, topic.name, data, partition=partition)

    async def write_sink(self, topic: Topic, number: int) -> None:
        """The driver's half of a write from Spark: its blocks are uploaded, and committed once."""
        ground = Ground(self._lab.control, self._lab.store)
        sealed = await ground.upload(topic)
        [batch] = sealed.batches
        values = [
            (record.value or b"").decode("latin-1") for record in decode_records(bytes(batch.data))
        ]
        self._notes.note("sent", partition=0, sequence=None, values=values)
        end = (await self._lab.state(topic, 0)).high_watermark
        await self._lab.control.scans.commit_sink("sink", number, [sealed.commit])
        self._notes.note("acknowledged", base=end)

    async def leave_an_orphan(self, topic: Topic) -> None:
        await Ground(self._lab.control, self._lab.store).upload(topic)

    async def trim(self, topic: Topic, partition: int, offset: int) -> None:
        self._notes.note("trimming", partition=partition, offset=offset)
        await self._lab.delete_records(topic, partition, offset)
        self._notes.note("trimmed", partition=partition, offset=offset)

    def _value(self, size_bytes: int) -> str:
        self._count += 1
        return f"value {self._count} ".ljust(size_bytes, ".")


async def run(folder: Path) -> None:
    settings = settings_at(folder)
    notes = Notes(folder)
    with Broker(settings) as broker, connected(broker.bootstrap) as wire:
        async with Lab.open(folder, control_url=settings.storage.control) as lab:
            work = Work(lab, wire, notes)
            await write_and_convert(work, lab)
    with Broker(settings) as broker, connected(broker.bootstrap) as wire:
        async with Lab.open(folder, control_url=settings.storage.control) as lab:
            again = Work(lab, wire, notes)
            again._sequences, again._count = work._sequences, work._count
            await again.stage("produce after a restart", lambda: again.produce(3))


async def run_producers(folder: Path) -> None:
    settings = settings_at(folder)
    with Broker(settings) as broker, connected(broker.bootstrap) as wire:
        async with Lab.open(folder, control_url=settings.storage.control) as lab:
            work = Work(lab, wire, Notes(folder))
            await work.create(TOPIC)
            await work.stage("produce", lambda: work.produce(12))


async def write_and_convert(work: Work, lab: Lab) -> None:
    topic = await work.create(TOPIC)
    gone = await work.create(GONE)
    await work.stage("produce", lambda: work.produce(8))
    await work.stage("produce to the other topic", lambda: work.produce_to(gone))
    await work.stage("merge", lab.run)
    await work.stage("produce large blocks", lambda: work.produce(2, LARGE_BYTES))
    await work.stage("produce more", lambda: work.produce(8))
    using(lab, PATIENT)
    await work.stage("split", lab.run)
    using(lab, EAGER)
    await work.stage("delete records", lambda: work.trim(topic, 1, 5))
    await work.stage("sink", lambda: work.write_sink(topic, 0))
    await work.stage("sink again", lambda: work.write_sink(topic, 1))
    await work.stage("an orphan", lambda: work.leave_an_orphan(topic))
    await work.stage("delete a topic", lambda: work.delete(gone))
    await work.stage("sweep", lab.clean)
    await work.stage("checkpoint", lambda: asyncio.to_thread(checkpoint, lab))
    await work.stage("produce after the checkpoint", lambda: work.produce(4))


def checkpoint(lab: Lab) -> None:
    """Let SQLite move its log into the file, as it does by itself after 1,000 pages."""
    raw = sqlite3.connect(lab.settings.storage.control.removeprefix("sqlite:"))
    raw.execute("PRAGMA wal_checkpoint(RESTART)")
    raw.close()


if __name__ == "__main__":
    os.umask(0o077)
    take_out(Guard(sys.argv[2]))
    works = {Scope.ALL: run, Scope.PRODUCERS: run_producers}
    asyncio.run(works[Scope(sys.argv[3])](Path(sys.argv[1])))
