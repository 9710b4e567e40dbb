"""A topic to be scanned: in blocks, or in segments, made as fast as bytes can be written."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np
from crc32c import crc32c
from tests.support.tiering import Converter

from stratalog.batch.build import build_batch
from stratalog.batch.codec import compress
from stratalog.batch.entry import EntryBatch
from stratalog.batch.header import (
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    Codec,
    TimestampType,
    pack_header,
    parse_header,
)
from stratalog.batch.records import Record
from stratalog.block.block import OpenBlock, SealedBlock, seal
from stratalog.clock import SystemClock
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.ids import BrokerId, ObjectId, PartitionIndex, uuid7
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.settings import DAY_MS, Settings, StorageSettings

START_MS = 1_700_000_000_000
DAYS = 100
_BATCH_BYTES = 16_000
_BLOCK_BYTES = 8 * 1024 * 1024
_ROWS_PER_SEGMENT = 128
"""Rows have up to 1 MiB."""


@dataclass(frozen=True, kw_only=True)
class Load:
    records: int
    value_bytes: int = 100
    partitions: int = 1
    codec: Codec = Codec.NONE
    """If there is one, values are hex digits, because random bytes do not shrink."""

    @property
    def batch_records(self) -> int:
        return max(1, _BATCH_BYTES // self.value_bytes)

    @property
    def batches(self) -> int:
        return -(-self.records // self.batch_records)

    @property
    def all_records(self) -> int:
        """Batches are full, so there may be a few more."""
        return self.batches * self.batch_records

    @property
    def batch_bytes(self) -> int:
        """Of uncompressed records, which all have the same size."""
        assert self.codec is Codec.NONE
        return len(next(_batches(self)))

    @property
    def batch_ms(self) -> int:
        """Between the beginnings of two batches, so that all make a hundred days."""
        return DAYS * DAY_MS // self.batches


def settings_in(folder: Path) -> Settings:
    return Settings(
        storage=StorageSettings(
            objects=f"file:{folder / 'objects'}", control=f"sqlite:{folder / 'control.db'}"
        )
    )


async def make_topic(settings: Settings, name: str, load: Load, *, segments: bool) -> None:
    """The load's records, spread evenly over its partitions, their times growing."""
    control = await open_control_plane(settings.storage.control)
    store = open_store(settings.storage.objects, clock=SystemClock())
    try:
        topic = await control.topics.create(name, partition_count=load.partitions, configs={})
        keys: list[str] = []
        for block in _blocks(topic, load):
            await store.put(block.commit.key, block.parts)
            await control.log.commit_blocks([block.commit])
            keys.append(block.commit.key)
        if segments:
            await _convert(control, store, topic)
            # As the janitor does later: there may not be room for all topics twice.
            await store.delete(keys)
    finally:
        await store.close()
        await control.close()


async def _convert(control: ControlPlane, store: ObjectStore, topic: Topic) -> None:
    converter = Converter(control=control, store=store)
    for partition in range(topic.partition_count):
        while await converter.convert(topic, partition, max_rows=_ROWS_PER_SEGMENT):
            pass


def _blocks(topic: Topic, load: Load) -> Iterator[SealedBlock]:
    batches = _batches(load)
    block = OpenBlock()
    for number in range(load.batches):
        data = next(batches)
        entry = EntryBatch(
            topic_id=topic.id,
            topic_name=topic.name,
            partition=PartitionIndex(number % load.partitions),
            timestamp_type=TimestampType.CREATE_TIME,
            header=parse_header(data),
            data=memoryview(data),
        )
        block.add([entry])
        if block.size_bytes >= _BLOCK_BYTES or number == load.batches - 1:
            yield _sealed(block)
            block = OpenBlock()


def _sealed(block: OpenBlock) -> SealedBlock:
    now_ms = SystemClock().now_ms()
    return seal(block, object_id=ObjectId(uuid7(now_ms)), broker_id=BrokerId(1), created_ms=now_ms)


def _batches(load: Load) -> Iterator[bytes]:
    """One batch with other values and times each time: encoding millions of records would take
    longer than all that is measured."""
    marks = [uuid4().bytes.ljust(load.value_bytes, b"#") for _ in range(load.batch_records)]
    records = [
        Record(at, START_MS, b"%08d" % at, mark[: load.value_bytes])
        for at, mark in enumerate(marks)
    ]
    template = build_batch(records)
    header = parse_header(template)
    starts = [template.index(mark[: load.value_bytes]) for mark in marks]
    places = np.add.outer(np.array(starts), np.arange(load.value_bytes)).ravel()
    data = np.frombuffer(template, np.uint8).copy()
    for number in range(load.batches):
        data[places] = np.frombuffer(_values(len(places), load.codec), np.uint8)
        body = data[HEADER_BYTES:].tobytes()
        if load.codec is not Codec.NONE:
            body = compress(load.codec, body)
        now_ms = START_MS + number * load.batch_ms
        yield _batch(
            header._replace(
                length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body),
                attributes=load.codec,
                base_timestamp=now_ms,
                max_timestamp=now_ms,
            ),
            body,
        )


def _values(size_bytes: int, codec: Codec) -> bytes:
    if codec is Codec.NONE:
        return os.urandom(size_bytes)
    return os.urandom(-(-size_bytes // 2)).hex().encode()[:size_bytes]


def _batch(header: BatchHeader, body: bytes) -> bytes:
    crc = crc32c(body, crc32c(pack_header(header)[CRC_START:]))
    return pack_header(header._replace(crc=crc)) + body
