"""Reads of a split: complete, in order, checked, and within bounds of memory."""

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.scan.rig import ScanRig

from stratalog.batch.header import Codec, parse_header
from stratalog.ids import Offset
from stratalog.opening.workers import WorkerKeys, worker_access
from stratalog.scan import batch_groups, decode, fetch
from stratalog.scan.errors import ScanDamagedError
from stratalog.scan.extents import RowExtent, SegmentExtent
from stratalog.scan.fetch import Source
from stratalog.scan.model import ScanColumn, ScanSplit, Stretch
from stratalog.scan.scan_stores import shared_scan_stores
from stratalog.scan.schema import arrow_schema
from stratalog.scan.split_reader import read_split


def one_stretch(split: ScanSplit) -> Stretch:
    [stretch] = split.stretches
    return stretch


def with_extents(split: ScanSplit, extents: Any) -> ScanSplit:
    return replace(split, stretches=[replace(one_stretch(split), extents=extents)])


async def one_split(rig: ScanRig, **request: Any) -> ScanSplit:
    [split] = (await rig.plan(**request)).splits
    return split


@pytest.fixture
def small_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "FETCH_BYTES", 100)
    monkeypatch.setattr(fetch, "AHEAD_BYTES", 350)


@pytest.mark.usefixtures("small_fetches")
@pytest.mark.parametrize("mode", ["plain", "both", None])
async def test_batches_that_arrive_in_many_parts_are_put_together(
    rig: ScanRig, mode: str | None
) -> None:
    """Parts are smaller than batches, and often than headers."""
    topic = await rig.topic()
    await rig.write(topic, {0: [1, 7, 2, 30]}, codec=Codec.LZ4)
    await rig.write(topic, {0: [1, 3, 3]})
    if mode is not None:
        await rig.convert(topic, mode=mode)
    assert await rig.offsets() == list(range(47))


@pytest.mark.usefixtures("small_fetches")
@pytest.mark.parametrize("mapped_bytes", [None, 400])
async def test_no_more_is_fetched_ahead_than_allowed(
    rig: ScanRig, monkeypatch: pytest.MonkeyPatch, mapped_bytes: int | None
) -> None:
    if mapped_bytes is not None:
        monkeypatch.setattr(fetch, "worth_mapping", lambda _: True)
        monkeypatch.setattr(fetch, "MAPPED_FETCH_BYTES", mapped_bytes)
    topic = await rig.topic()
    await rig.write(topic, {0: [1] * 100})
    split = await one_split(rig)
    opened = shared_scan_stores(worker_access(rig.settings, WorkerKeys.OPENING))
    asked = 0
    get_ranges = opened.objects.get_ranges

    async def counted(key: str, ranges: Any, **into: Any) -> Any:
        nonlocal asked
        asked += sum(one.end - one.start for one in ranges)
        return await get_ranges(key, ranges, **into)

    monkeypatch.setattr(opened.objects, "get_ranges", counted)
    parts = fetch.fetched(split, opened)
    taken, sizes = 0, set()
    for part, _ in parts:
        taken += part.size_bytes
        sizes.add(part.size_bytes)
        assert asked <= taken + max(350, 2 * (mapped_bytes or 0)) + 200
    assert asked == taken == split.size_bytes
    assert (max(sizes) > 200) is (mapped_bytes is not None)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "LEAST_ROWS", 100)
    monkeypatch.setattr(decode, "MOST_ROWS", 300)
    monkeypatch.setattr(batch_groups, "GROUP_RECORDS", 250)


@pytest.mark.usefixtures("small_batches")
async def test_batches_are_neither_tiny_nor_huge(rig: ScanRig) -> None:
    topic = await rig.topic(partitions=3)
    await rig.write(topic, {0: [1] * 50, 1: [30] * 50, 2: [700]})
    batches = [batch for split in (await rig.plan()).splits for batch in rig.read(split)]
    assert [batch.num_rows for batch in batches] == [50, *[270] * 5, 150, 234, 234, 232]
    assert batches[0].column("partition").to_pylist() == [0] * 50


async def test_tiny_batches_of_many_partitions_are_read_and_given_as_one(
    rig: ScanRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await rig.topic(partitions=60)
    await rig.write(topic, {partition: [1, 1] for partition in range(60)})
    opened = shared_scan_stores(worker_access(rig.settings, WorkerKeys.OPENING))
    asked = []
    get_ranges = opened.objects.get_ranges

    async def counted(key: str, ranges: Any, **into: Any) -> Any:
        asked.append(key)
        return await get_ranges(key, ranges, **into)

    monkeypatch.setattr(opened.objects, "get_ranges", counted)
    [batch] = rig.read(await one_split(rig))
    assert batch.column("partition").to_pylist() == [number // 2 for number in range(120)]
    assert len(asked) == 1


async def test_batches_with_large_values_are_cut(rig: ScanRig) -> None:
    topic = await rig.topic()
    await rig.write(topic, {0: [40]}, value_bytes=1024 * 1024, codec=Codec.ZSTD)
    batches = rig.read(await one_split(rig))
    assert sum(batch.num_rows for batch in batches) == 40
    assert all(batch.nbytes <= decode.MOST_BYTES for batch in batches)


async def test_batches_have_the_schema_that_spark_demands(rig: ScanRig) -> None:
    topic = await rig.topic()
    await rig.write(topic, {0: [3]})
    [batch] = rig.read(await one_split(rig))
    assert batch.schema.equals(arrow_schema(list(ScanColumn)), check_metadata=True)
    assert str(batch.schema.field("headers").type) == (
        "list<element: struct<key: string, value: binary>>"
    )
    assert str(batch.schema.field("timestamp").type) == "timestamp[us, tz=UTC]"


async def flip(rig: ScanRig, key: str, position: int) -> None:
    data = bytearray((await rig.store.get(key)).data)
    data[position] ^= 1
    await rig.store.put(key, [data])


@pytest.mark.parametrize("tier", ["block", "remote"])
async def test_a_flipped_bit_is_told_with_its_object(rig: ScanRig, tier: str) -> None:
    topic = await rig.topic()
    await rig.write(topic, {0: [5, 5]})
    if tier == "remote":
        await rig.convert(topic)
    for columns in (list(ScanColumn), [ScanColumn.OFFSET]):
        split = await one_split(rig, columns=columns)
        [extent] = one_stretch(split).extents
        key = Source(one_stretch(split), extent).object_key
        # Of a block's batch, the base offset is not in its bytes.
        for position in (10, 16, 30, 61 + 20) if tier == "block" else (3, 10, 16, 30, 61 + 20):
            await flip(rig, key, position)
            with pytest.raises(ScanDamagedError, match=rf"object {key}.*orders-0.*fsck"):
                rig.rows_of([split])
            await flip(rig, key, position)
        assert len(rig.rows_of([split])) == 10


async def test_rows_that_do_not_hold_their_offsets_are_told(rig: ScanRig) -> None:
    topic = await rig.topic()
    await rig.write(topic, {0: [5, 5]})
    split = await one_split(rig)
    [extent] = one_stretch(split).extents
    assert isinstance(extent, RowExtent)
    wrong = replace(extent, last_offset=Offset(10))
    with pytest.raises(ScanDamagedError, match="end before offset 10, not 11"):
        rig.rows_of([with_extents(split, [wrong])])
    short = replace(extent, byte_size=extent.byte_size - 1)
    with pytest.raises(ScanDamagedError, match="not a whole batch"):
        rig.rows_of([with_extents(split, [short])])


async def test_a_segment_of_ours_that_lacks_a_batch_is_told(rig: ScanRig) -> None:
    topic = await rig.topic()
    await rig.write(topic, {0: [5, 5, 5]})
    await rig.convert(topic)
    split = await one_split(rig)
    [extent] = one_stretch(split).extents
    assert isinstance(extent, SegmentExtent)
    data = bytes((await rig.store.get(extent.segment.key_base + ".log")).data)
    first = parse_header(data).size_bytes
    await rig.store.put(extent.segment.key_base + ".log", [data[first:], data[:first]])
    with pytest.raises(ScanDamagedError, match="says offset 5, not 0"):
        rig.rows_of([split])


async def test_segments_that_were_cut_short_are_told(rig: ScanRig) -> None:
    topic = await rig.topic()
    await rig.write(topic, {0: [5, 5, 5]})
    await rig.convert(topic)
    split = await one_split(rig)
    [extent] = one_stretch(split).extents
    assert isinstance(extent, SegmentExtent)
    end = replace(extent, end=extent.end - 5)
    with pytest.raises(ScanDamagedError, match="not a whole batch"):
        rig.rows_of([with_extents(split, [end])])


@pytest.mark.usefixtures("small_batches")
async def test_a_reader_that_is_dropped_gives_up_what_is_under_way(
    rig: ScanRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await rig.topic()
    await rig.write(topic, {0: [90] * 20})
    closed = []
    fetched = fetch.fetched

    def watched(*args: Any) -> Iterator[Any]:
        parts = fetched(*args)
        try:
            yield from parts
        finally:
            parts.close()
            closed.append(True)

    monkeypatch.setattr("stratalog.scan.split_reader.fetched", watched)
    reader = read_split(await one_split(rig), worker_access(rig.settings, WorkerKeys.OPENING))
    next(reader)
    assert not closed
    del reader
    assert closed


async def test_stores_are_opened_once_per_process(rig: ScanRig) -> None:
    place = worker_access(rig.settings, WorkerKeys.OPENING)
    assert shared_scan_stores(place) is shared_scan_stores(
        worker_access(rig.settings, WorkerKeys.OPENING)
    )
    other = replace(place, stores=replace(place.stores, object_options={"region": "eu"}))
    assert "eu" not in repr(other)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
async def test_a_forked_process_reads_with_connections_of_its_own(rig: ScanRig) -> None:
    """Spark forks its workers from one daemon."""
    topic = await rig.topic()
    await rig.write(topic, {0: [5]})
    split = await one_split(rig)
    assert len(rig.rows_of([split])) == 5
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if len(rig.rows_of([split])) == 5 else 1
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)  # noqa: ASYNC222
    assert os.waitstatus_to_exitcode(status) == 0
