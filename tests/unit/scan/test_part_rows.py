"""Parts of rows: a scan of a few records reads few bytes of a row, and gets the right records."""

import struct
from typing import Any

import pytest
from crc32c import crc32c
from tests.unit.scan.rig import NOW_MS, ScanRig

from stratalog.batch.build import build_batch
from stratalog.batch.header import Codec
from stratalog.block import batch_index, footer
from stratalog.control.log.model import TimeQuery
from stratalog.control.topics.model import Topic
from stratalog.ids import Offset, PartitionIndex, TopicPartition
from stratalog.scan import extent_planner
from stratalog.scan.extents import RowExtent
from stratalog.scan.model import AtTime, Positions, ScanPlan

BATCH = 10
BATCHES = 30


@pytest.fixture(autouse=True)
def narrows_small_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_index, "LEAST_ROW_BYTES", 1)
    monkeypatch.setattr(extent_planner, "NARROWED_ROW_BYTES", 100)


async def one_row(rig: ScanRig, **how: Any) -> Topic:
    """300 records, a second apart, in thirty batches of one row, beside other partitions."""
    topic = await rig.topic(partitions=3)
    await rig.write(topic, {1: [BATCH] * BATCHES, 0: [7], 2: [9]}, **how)
    state = (await rig.control.log.partitions([key(topic)]))[key(topic)]
    assert state.high_watermark == BATCH * BATCHES
    assert len(await rig.control.log.all_coordinates(key(topic), limit=9)) == 1
    return topic


def key(topic: Topic) -> TopicPartition:
    return TopicPartition(topic.id, PartitionIndex(1))


def between(start: Any, end: Any) -> dict[str, Any]:
    return {
        "topics": (),
        "assign": {"orders": [PartitionIndex(1)]},
        "starting": Positions(default=start),
        "ending": Positions(default=end),
    }


def row_bytes(plan: ScanPlan) -> int:
    found = [extent for split in plan.splits for one in split.stretches for extent in one.extents]
    assert all(isinstance(extent, RowExtent) for extent in found)
    return sum(extent.byte_size for extent in found)


def offsets_of(rig: ScanRig, plan: ScanPlan) -> list[int]:
    return [row["offset"] for row in rig.rows_of(plan.splits)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize(
    ("start", "end", "batches"),
    [(0, 1, 1), (5, 15, 2), (9, 10, 1), (10, 20, 1), (123, 131, 2), (0, 300, 30), (299, 300, 1)],
)
async def test_the_batches_that_hold_a_range_are_read_and_no_others(
    rig: ScanRig, codec: Codec, start: int, end: int, batches: int
) -> None:
    await one_row(rig, codec=codec)
    whole = row_bytes(await rig.plan(**between(Offset(0), Offset(300))))
    plan = await rig.plan(**between(Offset(start), Offset(end)))
    assert offsets_of(rig, plan) == list(range(start, end))
    assert abs(row_bytes(plan) - whole * batches / BATCHES) < whole / BATCHES


@pytest.mark.parametrize("append_time", [False, True])
async def test_times_stand_for_the_offsets_that_a_walk_over_all_records_finds(
    rig: ScanRig, append_time: bool
) -> None:
    await one_row(rig, append_time=append_time)
    records = rig.rows_of((await rig.plan(**between(Offset(0), Offset(300)))).splits)
    times = [round(row["timestamp"].timestamp() * 1000) for row in records]
    for wanted in (times[0] - 1, times[0], times[57], times[57] + 1, times[60], times[-1]):
        plan = await rig.plan(**between(AtTime(wanted), Offset(300)))
        first = next((number for number, at in enumerate(times) if at >= wanted), 300)
        assert offsets_of(rig, plan) == list(range(first, 300))
    plan = await rig.plan(**between(AtTime(times[-1] + 1), Offset(300)))
    assert offsets_of(rig, plan) == []


async def test_records_that_are_deleted_are_not_found_by_their_time(rig: ScanRig) -> None:
    topic = await one_row(rig)
    await rig.control.log.delete_records({key(topic): Offset(34)})
    plan = await rig.plan(**between(AtTime(NOW_MS), Offset(36)))
    assert offsets_of(rig, plan) == [34, 35]


async def test_a_time_is_looked_for_in_the_footer_and_one_batch(
    rig: ScanRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await one_row(rig, value_bytes=2000)
    times = rig.scanner._times
    store = rig.scanner._index._store
    read: list[int] = []
    get_ranges = store.get_ranges

    async def counted(name: str, ranges: Any, **how: Any) -> Any:
        read.extend(one.end - one.start for one in ranges)
        return await get_ranges(name, ranges, **how)

    monkeypatch.setattr(store, "get_ranges", counted)
    monkeypatch.setattr(batch_index, "_TAIL_BYTES", 1200)
    query = TimeQuery(topic_id=topic.id, partition=PartitionIndex(1), timestamp=NOW_MS + 123_000)
    found = await times.first(query)
    assert found is not None
    assert found.offset == 123
    assert found.timestamp == NOW_MS + 123_000
    tail, batch = read
    assert tail == 1200
    assert 15_000 < batch < 21_000, "of ten records, some of which have no value"
    await times.first(query)
    assert read == [tail, batch, batch], "the footer is read once"


async def test_a_footer_longer_than_the_first_look_is_read_whole(
    rig: ScanRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_index, "_TAIL_BYTES", 100)
    await one_row(rig)
    plan = await rig.plan(**between(Offset(50), Offset(60)))
    assert offsets_of(rig, plan) == list(range(50, 60))
    narrow = row_bytes(plan)
    monkeypatch.setattr(batch_index, "_LARGEST_PART", 1000)
    rig.scanner._index._footers.clear()
    plan = await rig.plan(**between(Offset(50), Offset(60)))
    assert offsets_of(rig, plan) == list(range(50, 60))
    assert row_bytes(plan) > 20 * narrow, "it would be larger than what it saves"


def _without_times(data: bytes) -> bytes:
    """The same footer, as the first version had it."""
    old = footer.decode_footer(data)
    payload = struct.pack(
        ">HH16siqI", 1, 0, old.block_id.bytes, old.broker_id, old.created_ms, len(old.partitions)
    )
    for one in old.partitions:
        name = one.topic_name.encode()
        payload += struct.pack(">16sH", one.topic_id.bytes, len(name)) + name
        payload += struct.pack(">iI", one.partition, len(one.batches))
        for batch in one.batches:
            payload += struct.pack(">QII", batch.byte_offset, batch.byte_size, batch.record_count)
    return payload + struct.pack(">II8s", len(payload), crc32c(payload), footer.FOOTER_MAGIC)


def _of_other_counts(data: bytes) -> bytes:
    old = bytearray(data[: -footer.TRAILER_BYTES])
    old[-17] += 1
    trailer = struct.pack(">II8s", len(old), crc32c(bytes(old)), footer.FOOTER_MAGIC)
    return bytes(old) + trailer


@pytest.mark.parametrize(
    "change",
    [
        _without_times,
        _of_other_counts,
        lambda data: data[:-1] + b"?",
        lambda data: bytes([data[0] ^ 1]) + data[1:],
        lambda data: data[:-12] + bytes(4) + data[-8:],
        lambda data: data[:-16] + struct.pack(">I", 1 << 31) + data[-12:],
    ],
    ids=["old", "counts", "magic", "preamble", "crc", "length"],
)
async def test_without_a_good_footer_the_row_is_read_whole_and_the_records_are_right(
    rig: ScanRig, change: Any
) -> None:
    topic = await rig.topic(partitions=2)
    await rig.write(topic, {1: [BATCH] * BATCHES})
    [row] = await rig.control.log.all_coordinates(key(topic), limit=9)
    data = bytes((await rig.store.get(row.object_key)).data)
    changed = data[: row.byte_size] + change(data[row.byte_size :])
    await rig.store.put(row.object_key, [changed])
    plan = await rig.plan(**between(Offset(50), Offset(60)))
    assert offsets_of(rig, plan) == list(range(50, 60))
    plan = await rig.plan(**between(AtTime(NOW_MS + 50_000), AtTime(NOW_MS + 60_000)))
    assert offsets_of(rig, plan) == list(range(50, 60))


async def test_a_batch_that_claims_a_time_which_none_of_its_records_has_is_passed_by(
    rig: ScanRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers write the greatest time of a batch themselves."""

    def claiming(records: Any, **how: Any) -> bytes:
        data = bytearray(build_batch(records, **how))
        struct.pack_into(">q", data, 35, NOW_MS + 10_000_000)
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
        return bytes(data)

    topic = await rig.topic(partitions=2)
    with monkeypatch.context() as patch:
        patch.setattr("tests.unit.scan.rig.build_batch", claiming)
        await rig.write(topic, {1: [BATCH] * BATCHES})
    plan = await rig.plan(**between(AtTime(NOW_MS + 77_000), Offset(80)))
    assert offsets_of(rig, plan) == [77, 78, 79]
