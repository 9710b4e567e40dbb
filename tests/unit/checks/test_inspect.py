import json
from collections.abc import AsyncIterator

import pytest
from tests.unit.checks.snapshots import CREATED_MS, KEY, OBJECT, TOPIC, batch

from stratalog.batch.build import build_batch
from stratalog.batch.header import parse_header
from stratalog.batch.records import Record
from stratalog.block.footer import BlockFooter, FooterBatch, FooterPartition, encode_footer
from stratalog.checks.inspect import inspect_object
from stratalog.clock import SystemClock
from stratalog.ids import BrokerId, ObjectId, PartitionIndex
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore

BATCHES = [batch(2), batch(3), build_batch([Record(0, 5, None, b"\xff", (("h", b"1"),))])]
DATA = b"".join(BATCHES)


def footer(
    *, block_id: ObjectId = OBJECT, counts: tuple[int, ...] = (2, 3, 1), later_ms: int = 0
) -> bytes:
    entries = []
    position = 0
    for data, count in zip(BATCHES, counts, strict=True):
        entries.append(
            FooterBatch(
                byte_offset=position,
                byte_size=len(data),
                record_count=count,
                max_timestamp=parse_header(data).max_timestamp + later_ms,
            )
        )
        position += len(data)
    return encode_footer(
        BlockFooter(
            block_id=block_id,
            broker_id=BrokerId(1),
            created_ms=CREATED_MS,
            partitions=[
                FooterPartition(
                    topic_id=TOPIC,
                    topic_name="orders",
                    partition=PartitionIndex(number),
                    batches=batches,
                )
                for number, batches in ((0, entries[:2]), (4, entries[2:]))
            ],
        )
    )


@pytest.fixture
async def store() -> AsyncIterator[ObjectStore]:
    store = open_store("memory:", clock=SystemClock())
    yield store
    await store.close()


async def test_a_healthy_block_tells_all_it_holds(store: ObjectStore) -> None:
    await store.put(KEY, [DATA, footer()])
    inspection = await inspect_object(store, KEY, records=True)
    assert inspection.ok
    assert [
        (batch.partition and batch.partition.partition, batch.crc_ok, len(batch.records or ()))
        for batch in inspection.batches
    ] == [(0, True, 2), (0, True, 3), (4, True, 1)]


async def test_an_inspection_is_json(store: ObjectStore) -> None:
    await store.put(KEY, [DATA, footer()])
    told = json.loads(json.dumps((await inspect_object(store, KEY, records=True)).as_dict()))
    assert told["footer"]["partitions"][0] == {
        "topic": "orders",
        "topic_id": str(TOPIC),
        "partition": 0,
        "batches": 2,
        "bytes": len(BATCHES[0]) + len(BATCHES[1]),
        "records": 5,
        "answers": [],
    }
    assert told["batches"][2]["header"]["records_count"] == 1
    assert told["batches"][2]["records"] == [
        {
            "offset": 0,
            "timestamp": 5,
            "key": None,
            "value": {"base64": "/w=="},
            "headers": [["h", "1"]],
        }
    ]


async def test_records_are_told_only_when_asked_for(store: ObjectStore) -> None:
    await store.put(KEY, [DATA, footer()])
    inspection = await inspect_object(store, KEY)
    assert {batch.records for batch in inspection.batches} == {None}


async def test_a_damaged_batch_does_not_hide_those_after_it(store: ObjectStore) -> None:
    data = bytearray(DATA)
    data[len(BATCHES[0]) - 1] ^= 1
    data[len(BATCHES[0]) + 16] = 1
    await store.put(KEY, [data, footer()])
    inspection = await inspect_object(store, KEY, records=True)
    first, second, third = inspection.batches
    assert not inspection.ok
    assert first.header is not None
    assert not first.crc_ok
    assert "CRC" in (first.error or "")
    assert second.header is None
    assert "magic 1" in (second.error or "")
    assert third.crc_ok
    json.dumps(inspection.as_dict())


async def test_a_footer_that_counts_other_records_than_the_batch_is_told(
    store: ObjectStore,
) -> None:
    await store.put(KEY, [DATA, footer(counts=(2, 4, 1))])
    inspection = await inspect_object(store, KEY)
    assert inspection.batches[1].error == "3 records, the footer says 4"
    assert inspection.batches[1].crc_ok


async def test_a_footer_that_tells_other_times_than_the_batch_is_told(store: ObjectStore) -> None:
    await store.put(KEY, [DATA, footer(later_ms=1)])
    inspection = await inspect_object(store, KEY)
    assert inspection.batches[2].error == "newest record at 5, the footer says 6"
    assert inspection.batches[2].crc_ok


async def test_a_footer_of_another_block_is_told(store: ObjectStore) -> None:
    await store.put(KEY, [DATA, footer(block_id=ObjectId(TOPIC))])
    inspection = await inspect_object(store, KEY)
    assert "a misplaced copy?" in inspection.errors[0]
    assert len(inspection.batches) == 3


@pytest.mark.parametrize(
    ("tail", "error"),
    [
        (b"", "not a block, or cut short"),
        (footer()[:-1], "not a block, or cut short"),
        (footer()[1:], "CRC is"),
    ],
)
async def test_without_a_footer_the_batches_are_walked(
    store: ObjectStore, tail: bytes, error: str
) -> None:
    await store.put(KEY, [DATA, tail])
    inspection = await inspect_object(store, KEY)
    assert error in inspection.errors[0]
    assert [batch.crc_ok for batch in inspection.batches] == [True] * 3
    assert {batch.partition for batch in inspection.batches} == {None}


async def test_a_footer_that_claims_its_own_bytes_for_batches_is_damage(
    store: ObjectStore,
) -> None:
    await store.put(KEY, [DATA[:-1], footer()])
    inspection = await inspect_object(store, KEY)
    assert "inside the footer" in inspection.errors[0]
    assert [batch.crc_ok for batch in inspection.batches] == [True, True, False]


async def test_a_footer_longer_than_the_object_is_damage(store: ObjectStore) -> None:
    await store.put(KEY, [footer()[-16:]])
    inspection = await inspect_object(store, KEY)
    assert "bytes before the object" in inspection.errors[0]


async def test_an_object_shorter_than_a_trailer_is_damage(store: ObjectStore) -> None:
    await store.put(KEY, [b"short"])
    inspection = await inspect_object(store, KEY)
    assert len(inspection.errors) == 2
    assert inspection.batches == []


async def test_an_object_that_is_not_there_is_not_found(store: ObjectStore) -> None:
    with pytest.raises(ObjectNotFoundError):
        await inspect_object(store, KEY)
