"""A log of many producers, whose transactions interleave, end well or badly, and cross segments."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from confluent_kafka import TopicPartition
from tests.integration.spark_topics import Lake, ReadRow, fill, received_row
from tests.support.adopted_log import adopt_log
from tests.support.clients.confluent_client import confluent_consumer, confluent_poll
from tests.support.clusters import BASE, folder_storage, one_broker

from stratalog.batch.build import build_batch
from stratalog.batch.control import ControlType, EndTxnMarker, end_txn_record
from stratalog.batch.header import Codec
from stratalog.batch.records import Record
from stratalog.control.plane import ControlPlane
from stratalog.objects.store import ObjectStore
from stratalog.topic.adopt import open_for_writes

TOPIC = "ledger"
START_MS = 1_780_000_000_000
PRODUCERS = range(1, 6)
SEGMENTS = 5
STEPS = 14
"""Batches of a segment."""
FRESH = 12
"""Records in blocks after all segments, outside of any transaction."""
LEVELS = ("read_committed", "read_uncommitted")


@dataclass
class Ledger:
    """Batches as they are written, and the records by offset that were not rolled back."""

    random: Random
    end: int = 0
    open: dict[int, list[int]] = field(default_factory=dict)
    """The offsets of each producer's transaction that is not over."""
    sequences: dict[int, int] = field(default_factory=dict)
    everything: list[int] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)

    def records(self) -> bytes:
        """A batch, of a transaction or of none."""
        producer = self.random.choice([-1, *PRODUCERS])
        count = self.random.randint(1, 4)
        offsets = range(self.end, self.end + count)
        batch = build_batch(
            [self._record(place, offset) for place, offset in enumerate(offsets)],
            codec=self.random.choice(list(Codec)),
            producer_id=producer,
            producer_epoch=-1 if producer < 0 else 0,
            base_sequence=-1 if producer < 0 else self.sequences.get(producer, 0),
            transactional=producer >= 0,
        )
        if producer >= 0:
            self.open.setdefault(producer, []).extend(offsets)
            self.sequences[producer] = self.sequences.get(producer, 0) + count
        self.everything.extend(offsets)
        self.end += count
        return batch

    def marker(self) -> bytes:
        """The marker at the end of a transaction."""
        producer = self.random.choice(sorted(self.open))
        kind = self.random.choice([ControlType.ABORT, ControlType.COMMIT])
        offsets = self.open.pop(producer)
        if kind is ControlType.ABORT:
            self.aborted.update(offsets)
        ended = end_txn_record(EndTxnMarker(kind, 0), offset=0, timestamp_ms=START_MS + self.end)
        self.end += 1
        return build_batch(
            [ended], producer_id=producer, producer_epoch=0, transactional=True, control=True
        )

    def segment(self) -> Iterator[bytes]:
        for _ in range(STEPS):
            yield self.marker() if self.open and self.random.random() < 0.3 else self.records()

    def rest(self) -> Iterator[bytes]:
        """A last segment, after which no transaction is open."""
        yield self.records()
        while self.open:
            yield self.marker()

    def offsets(self, level: str) -> list[int]:
        kept = [
            offset
            for offset in self.everything
            if level == "read_uncommitted" or offset not in self.aborted
        ]
        return [*kept, *range(self.end, self.end + FRESH)]

    def _record(self, place: int, offset: int) -> Record:
        return Record(
            place,
            START_MS + 1000 * offset,
            None if offset % 7 == 3 else b"key %d" % (offset % 5),
            None if offset % 11 == 5 else b"value %d " % offset + b"." * (offset % 6 * 30),
            (("number", b"%d" % offset), ("nothing", None)) if offset % 3 else (),
        )


@dataclass(frozen=True)
class ReadLedger:
    """The topic, and its rows as a Kafka consumer of each isolation level has read them."""

    lake: Lake
    rows: dict[str, list[ReadRow]]


async def adopt_ledger(folder: Path, seed: int) -> Ledger:
    ledger = Ledger(Random(seed))
    segments = [[*ledger.segment()] for _ in range(SEGMENTS)]
    noted = await adopt_log(folder, TOPIC, [*segments, [*ledger.rest()]])
    assert sum(noted) >= SEGMENTS // 2
    return ledger


def make_ledger(folder: Path, seed: int) -> ReadLedger:
    """Adopt it, add some records, and read all by Kafka's own client. No broker is left."""
    ledger = asyncio.run(adopt_ledger(folder, seed))
    settings = replace(BASE, storage=folder_storage(folder))
    lake = Lake.of(settings, folder)
    lake.run(_open_for_writes)
    with one_broker(folder, base=settings) as cluster:
        fill(cluster.bootstrap, TOPIC, FRESH, each=4)
        rows = {level: _consumed(cluster.bootstrap, ledger, level) for level in LEVELS}
    return ReadLedger(lake, rows)


async def _open_for_writes(control: ControlPlane, _: ObjectStore) -> None:
    [topic] = await control.topics.named([TOPIC])
    await open_for_writes(control, topic.id)


def _consumed(bootstrap: str, ledger: Ledger, level: str) -> list[ReadRow]:
    offsets = ledger.offsets(level)
    consumer = confluent_consumer(bootstrap, **{"isolation.level": level})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    received = confluent_poll(consumer, len(offsets))
    consumer.close()
    assert [one.offset for one in received] == offsets
    return [received_row(TOPIC, 0, one) for one in received]
