"""A topic as Kafka left it: the objects of Aiven's plugin, and the records that tell of them."""

import json
import shutil
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.unit.segment.layout_golden import (
    EVENT_MS,
    GOLDEN,
    INDEXES,
    KEY_BASE,
    LOG,
    PREFIX,
    PRIVATE_PEM,
    SEGMENT,
    TOPIC,
    TOPIC_ID,
    Mode,
)

from stratalog.batch.frames import iter_batches
from stratalog.batch.records import iter_records
from stratalog.clock import SystemClock
from stratalog.control.segments.model import SegmentState, SegmentToAdd
from stratalog.ids import LeaderEpoch, Offset, PartitionIndex, SegmentId, TopicId, kafka_base64
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.segment.build import SegmentBuilder
from stratalog.segment.chunk_encoding import Encoding
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.keys import SUFFIXES, segment_key_base
from stratalog.segment.model import SegmentIndexes, SourceRun
from stratalog.segment.remote_log_metadata import (
    SegmentAdded,
    SegmentUpdated,
    added_record,
    encode_record,
)
from stratalog.segment.upload import upload_indexes, upload_log

PARTITION = 7
FIRST, END = 5000, 9454
OPEN_PRODUCER = 4000
"""Of the two producers in the golden snapshot, the one with a sequence and an open transaction."""
ADDED = added_record(SEGMENT, TOPIC, event_ms=EVENT_MS, txn_index_empty=False)
KEY_SETTING = f"remote.private_keys.key1={PRIVATE_PEM}"

GOLDEN_RECORDS = [
    (record.offset, record.timestamp, record.key, record.value) for record in iter_records(LOG)
]


def lay_out(folder: Path, mode: Mode, topic_id: TopicId = TOPIC_ID, prefix: str = PREFIX) -> None:
    """Put the objects of the golden segment into a folder, as the plugin would for that id."""
    base = KEY_BASE.removeprefix(PREFIX).replace(kafka_base64(TOPIC_ID), kafka_base64(topic_id))
    for suffix in SUFFIXES:
        target = folder / f"{prefix}{base}{suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(GOLDEN / f"aiven_{mode}" / (KEY_BASE + suffix), target)


def with_id(record: SegmentAdded, topic_id: TopicId) -> SegmentAdded:
    return replace(record, partition=record.partition._replace(topic_id=topic_id))


def finished(added: SegmentAdded, **changes: Any) -> SegmentUpdated:
    values: dict[str, Any] = {
        "partition": added.partition,
        "segment_id": added.segment_id,
        "broker_id": added.broker_id,
        "event_ms": added.event_ms + 1,
        "custom_metadata": None,
        "state": SegmentState.COPY_FINISHED,
    }
    return SegmentUpdated(**values | changes)


def metadata_values(*segments: SegmentAdded) -> list[bytes]:
    """Started and finished, for each."""
    return [
        encode_record(record)
        for added in segments or (ADDED,)
        for record in (added, finished(added))
    ]


def write_dump(file: Path, values: Iterable[bytes]) -> Path:
    lines = [json.dumps({"value_base64": b64encode(value).decode()}) for value in values]
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


async def put_segment(
    store: ObjectStore,
    segment: SegmentToAdd,
    log: bytes,
    indexes: SegmentIndexes,
    *,
    keys: KeyRing | None = None,
) -> SegmentAdded:
    """Lay a segment out as the plugin does, encrypted if there are keys; the record of it."""
    keys = keys or KeyRing()
    encoding = Encoding(encrypt=keys.active is not None)
    uploaded = await upload_log(store, segment.key_base, _once(log), encoding, keys)
    await upload_indexes(
        store, segment.key_base, indexes, uploaded, segment, TOPIC, keys, event_ms=EVENT_MS
    )
    return added_record(segment, TOPIC, event_ms=EVENT_MS, txn_index_empty=not indexes.transaction)


async def lay_out_overlapping(
    folder: Path, ranges: Sequence[tuple[int, int]]
) -> list[SegmentAdded]:
    """The golden log as segments of these ranges of its batches."""
    store = open_store(f"file:{folder}", {}, clock=SystemClock())
    log = bytearray(LOG)
    batches = [(position, header) for position, header in iter_batches(log)]
    positions = [position for position, _ in batches] + [len(log)]
    records = []
    for start, end in ranges:
        data = log[positions[start] : positions[end]]
        base = Offset(batches[start][1].base_offset)
        last = Offset(batches[end - 1][1].last_offset)
        builder = SegmentBuilder(base)
        builder.add(data, SourceRun(base, last, LeaderEpoch(3), stamped=True))
        built = builder.finish()
        segment_id = SegmentId(uuid4())
        segment = replace(
            SEGMENT,
            segment_id=segment_id,
            base_offset=base,
            last_offset=last,
            size_bytes=len(data),
            leader_epochs=built.leader_epochs,
            key_base=segment_key_base(
                PREFIX, TOPIC, TOPIC_ID, PartitionIndex(PARTITION), base, segment_id
            ),
        )
        indexes = replace(INDEXES, offset=built.offset_index, timestamp=built.time_index)
        records.append(await put_segment(store, segment, bytes(data), indexes))
    await store.close()
    return records


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
