"""Scans of rows that the pipeline has sorted into split files: the same rows as before."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.scan.rig import NOW_MS, Row, ScanRig

from stratalog.batch.header import Codec
from stratalog.block.keys import parse_split_key
from stratalog.control.topics.model import Topic
from stratalog.ids import Offset
from stratalog.pieces import Tier
from stratalog.scan.extents import Extent, RowExtent, SegmentExtent
from stratalog.scan.model import AtTime, Positions, RowFilter, ScanColumn, ScanPlan

PARTITIONS = 3
COUNTS = {0: [4, 3], 1: [2], 2: [1, 1, 5]}
SIZES = (60, 900, 10**9)


async def write(rig: ScanRig, topic: Topic) -> None:
    for codec in Codec:
        await rig.write(topic, COUNTS, codec=codec)


async def all_places(rig: ScanRig) -> Topic:
    """A third of the topic in segments, a third in split files, a third in blocks."""
    topic = await rig.topic(partitions=PARTITIONS)
    await write(rig, topic)
    assert (await rig.merge()).segments == PARTITIONS
    await write(rig, topic)
    assert (await rig.split()).split_files == 1
    await write(rig, topic)
    return topic


def expected(rig: ScanRig) -> list[Row]:
    """The written records, as a scan of all columns gives them."""
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": "orders",
            "partition": partition,
            "offset": offset,
            "timestamp": datetime.fromtimestamp(record.timestamp / 1000, UTC),
            "timestampType": 0,
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
            "leaderEpoch": 0,
        }
        for partition in range(PARTITIONS)
        for offset, record in enumerate(rig.records["orders", partition])
    ]


def but_tiers(rows: Sequence[Row]) -> list[Row]:
    return [{name: row[name] for name in row if name != "tier"} for row in rows]


def places_of(plan: ScanPlan) -> list[str]:
    """Name the kind of object of each extent, and equal neighbours once."""
    found: list[str] = []
    for split in plan.splits:
        for stretch in split.stretches:
            for extent in stretch.extents:
                place = place_of(extent)
                if found[-1:] != [place]:
                    found.append(place)
    return found


def place_of(extent: Extent) -> str:
    if isinstance(extent, SegmentExtent):
        return "segment"
    assert isinstance(extent, RowExtent)
    is_split = parse_split_key(extent.object_key) is not None
    assert extent.run.stamped == is_split
    return "split file" if is_split else "block"


async def test_segments_split_files_and_blocks_give_all_that_was_written(rig: ScanRig) -> None:
    await all_places(rig)
    for size_bytes in SIZES:
        plan = await rig.plan(split_bytes=size_bytes)
        assert places_of(plan) == ["segment", "split file", "block"] * PARTITIONS
        rows = rig.rows_of(plan.splits)
        assert but_tiers(rows) == expected(rig)
        assert {row["tier"] for row in rows} == {Tier.BLOCK, Tier.REMOTE}


async def test_split_files_that_are_split_again_give_the_same(rig: ScanRig) -> None:
    topic = await rig.topic(partitions=PARTITIONS)
    for _ in range(3):
        await write(rig, topic)
        assert (await rig.split()).split_files == 1
    plan = await rig.plan()
    assert places_of(plan) == ["split file"]
    assert len(plan.splits[0].stretches[0].extents) == 1
    assert but_tiers(rig.rows_of(plan.splits)) == expected(rig)
    assert (await rig.merge()).segments == PARTITIONS
    assert but_tiers(await rig.rows()) == expected(rig)


def second(number: int) -> int:
    """The time of a record, and of all that were written after it."""
    return NOW_MS + 1000 * number


Wanted = Callable[[Row, int], bool]
"""Of a row and its record's number."""

CHOICES: list[tuple[dict[str, Any], Wanted]] = [
    ({"rows": RowFilter(partitions=frozenset({1}))}, lambda row, _: row["partition"] == 1),
    (
        {"rows": RowFilter(first_offset=33, end_offset=41)},
        lambda row, _: 33 <= row["offset"] < 41,
    ),
    (
        {"rows": RowFilter(first_timestamp_ms=second(95), end_timestamp_ms=second(155))},
        lambda _, number: 95 <= number < 155,
    ),
    ({"rows": RowFilter(first_timestamp_ms=second(239))}, lambda _, number: number >= 239),
    (
        {"starting": Positions(default=Offset(8)), "ending": Positions(default=Offset(28))},
        lambda row, _: 8 <= row["offset"] < 28,
    ),
    (
        {
            "starting": Positions(default=AtTime(second(100))),
            "ending": Positions(default=AtTime(second(150))),
        },
        lambda _, number: 100 <= number < 150,
    ),
]


@pytest.mark.parametrize("columns", [tuple(ScanColumn), ("value", "offset"), ("headers",)])
async def test_columns_and_filters_reach_into_split_files(
    rig: ScanRig, columns: Sequence[str]
) -> None:
    await all_places(rig)
    numbers = [
        (record.timestamp - NOW_MS) // 1000
        for partition in range(PARTITIONS)
        for record in rig.records["orders", partition]
    ]
    names = [name for name in columns if name != "tier"]
    for request, wanted in CHOICES:
        rows = [
            {name: row[name] for name in names}
            for row, number in zip(expected(rig), numbers, strict=True)
            if wanted(row, number)
        ]
        assert rows
        for size_bytes in SIZES:
            found = await rig.rows(
                columns=[ScanColumn(name) for name in columns], split_bytes=size_bytes, **request
            )
            assert but_tiers(found) == rows


async def test_times_of_the_broker_are_the_same_in_split_files(rig: ScanRig) -> None:
    topic = await rig.topic(partitions=PARTITIONS)
    for codec in Codec:
        await rig.write(topic, COUNTS, codec=codec, append_time=True)
    before = await rig.rows()
    times = sorted({row["timestamp"] for row in before})
    assert (await rig.split()).split_files == 1
    assert await rig.rows() == before
    assert {row["timestampType"] for row in before} == {1}
    for first in times:
        for end in times:
            rows = RowFilter(
                first_timestamp_ms=round(first.timestamp() * 1000),
                end_timestamp_ms=round(end.timestamp() * 1000),
            )
            wanted = [row for row in before if first <= row["timestamp"] < end]
            assert await rig.rows(rows=rows) == wanted
