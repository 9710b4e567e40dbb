"""However a topic lies in segments, split files and blocks and is divided, every offset is read
once."""

import tempfile
from itertools import pairwise
from pathlib import Path
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.scan.rig import MODES, ScanRig, scan_rig

from stratalog.batch.columns import AbortedRecords, BatchRun
from stratalog.batch.header import Codec
from stratalog.control.scans.model import EARLIEST, LATEST
from stratalog.control.segments.model import Segment, SegmentState
from stratalog.control.topics.model import Topic
from stratalog.ids import Offset, PartitionIndex, SegmentId, TopicId
from stratalog.scan.extents import Extent, RowExtent, SegmentExtent
from stratalog.scan.model import Positions, ScanColumn, ScanRequest, Stretch
from stratalog.scan.scan_splits import cut_into_splits

BATCHES = st.lists(st.integers(1, 12), min_size=1, max_size=5)
"""So many records in each batch of a block."""
Blocks = list[tuple[list[int], Codec]]
BLOCKS = st.lists(st.tuples(BATCHES, st.sampled_from(Codec)), min_size=1, max_size=4)
TOPICS = st.tuples(
    st.lists(st.tuples(BLOCKS, st.booleans(), st.sampled_from(sorted(MODES))), max_size=2),
    st.lists(BLOCKS, max_size=2),
    BLOCKS,
)
"""The records that become segments, some by way of split files, the records that become split
files, and the rest.
"""


@settings(max_examples=8, deadline=None)
@given(
    topic=TOPICS,
    index_interval_bytes=st.integers(1, 2000),
    split_bytes=st.lists(st.integers(1, 5000), min_size=1, max_size=3),
    min_splits=st.integers(1, 9),
    most_offsets=st.none() | st.integers(1, 20),
    cut=st.tuples(st.integers(0, 200), st.integers(0, 200)),
)
async def test_every_offset_is_read_once_and_in_order(
    topic: tuple[list[tuple[Blocks, bool, str]], list[Blocks], Blocks],
    index_interval_bytes: int,
    split_bytes: list[int],
    min_splits: int,
    most_offsets: int | None,
    cut: tuple[int, int],
) -> None:
    segments, splits, fresh = topic
    with tempfile.TemporaryDirectory() as folder:
        async with scan_rig(Path(folder)) as rig:
            made = await rig.topic()
            for blocks, split_first, mode in segments:
                await write(rig, made, blocks)
                if split_first:
                    await rig.split()
                await rig.convert(made, mode=mode, index_interval_bytes=index_interval_bytes)
            for blocks in splits:
                await write(rig, made, blocks)
                await rig.split()
            await write(rig, made, fresh)
            start, end = sorted(min(one, rig.written) for one in cut)
            for size_bytes in split_bytes:
                plan = await rig.plan(
                    split_bytes=size_bytes, min_splits=min_splits, max_split_offsets=most_offsets
                )
                parts = [rig.rows_of([split]) for split in plan.splits]
                rows = [row for part in parts for row in part]
                assert [row["offset"] for row in rows] == list(range(rig.written))
                values = [record.value for record in rig.records["orders", 0]]
                assert [row["value"] for row in rows] == values
                assert len(parts) >= min(min_splits, rig.written)
                assert max(map(len, parts)) <= (most_offsets or rig.written)
                found = await rig.offsets(
                    starting=Positions(default=Offset(start) if start else EARLIEST),
                    ending=Positions(default=Offset(end) if end < rig.written else LATEST),
                    split_bytes=size_bytes,
                    max_split_offsets=most_offsets,
                )
                assert found == list(range(start, end))


async def write(rig: ScanRig, topic: Topic, blocks: Blocks) -> None:
    for batches, codec in blocks:
        await rig.write(topic, {0: batches}, codec=codec)


SIZES = st.lists(st.integers(1, 10_000), min_size=1, max_size=6)


@st.composite
def stretches(draw: st.DrawFn) -> list[Stretch]:
    made: list[Stretch] = []
    for partition in range(draw(st.integers(1, 8))):
        extents: list[Extent] = []
        offset = 0
        for size_bytes in draw(SIZES):
            count = draw(st.integers(1, 50))
            is_segment = draw(st.booleans()) and not any(
                isinstance(extent, RowExtent) for extent in extents
            )
            if is_segment:
                extents.append(segment_extent(offset, count, size_bytes))
            else:
                extents.append(row_extent(offset, count, size_bytes))
            offset += count
        aborted = [AbortedRecords(1, first, first + 3) for first in range(0, offset, 10)]
        made.append(
            Stretch(
                topic="orders",
                partition=PartitionIndex(partition),
                first_offset=Offset(0),
                end_offset=Offset(offset),
                extents=extents,
                aborted=aborted,
            )
        )
    return made


def row_extent(offset: int, count: int, size_bytes: int) -> RowExtent:
    return RowExtent(
        object_key=f"blocks/{offset}",
        byte_offset=0,
        byte_size=size_bytes,
        run=BatchRun(offset),
        last_offset=Offset(offset + count - 1),
    )


def segment_extent(offset: int, count: int, size_bytes: int) -> SegmentExtent:
    segment = Segment(
        segment_id=SegmentId(UUID(int=offset)),
        topic_id=TopicId(UUID(int=1)),
        partition=PartitionIndex(0),
        base_offset=Offset(offset),
        last_offset=Offset(offset + count - 1),
        size_bytes=size_bytes,
        max_timestamp=0,
        leader_epochs=(),
        key_base="",
        state=SegmentState.COPY_FINISHED,
        chained=True,
        owned=True,
        added_ms=0,
        changed_ms=0,
        uploaded=None,
    )
    return SegmentExtent(
        segment=segment, start=0, end=size_bytes, exact=True, first_offset=Offset(offset)
    )


@settings(max_examples=60, deadline=None)
@given(stretches(), st.integers(100, 20_000))
def test_splits_cover_all_bytes_in_order_and_are_of_about_one_size(
    given_: list[Stretch], split_bytes: int
) -> None:
    request = ScanRequest(topics=["orders"], columns=[ScanColumn.OFFSET])
    splits = cut_into_splits(given_, request, split_bytes)
    total_bytes = sum(stretch.size_bytes for stretch in given_)
    assert sum(split.size_bytes for split in splits) == total_bytes
    assert all(split.size_bytes for split in splits)
    expected = [mark for stretch in given_ for mark in marks(stretch)]
    found = [mark for split in splits for stretch in split.stretches for mark in marks(stretch)]
    assert joined(found) == joined(expected)
    largest_row = max(
        (
            extent.byte_size
            for stretch in given_
            for extent in stretch.extents
            if isinstance(extent, RowExtent)
        ),
        default=0,
    )
    assert max(split.size_bytes for split in splits) <= 1.5 * split_bytes + largest_row + 1
    for split in splits:
        for stretch in split.stretches:
            check_aborted(
                stretch, next(one for one in given_ if one.partition == stretch.partition)
            )


@settings(max_examples=60, deadline=None)
@given(stretches(), st.integers(100, 20_000), st.integers(1, 400), st.none() | st.integers(1, 400))
def test_splits_are_as_many_as_asked_for_and_have_no_more_offsets_than_they_may(
    given_: list[Stretch], split_bytes: int, min_splits: int, most_offsets: int | None
) -> None:
    request = ScanRequest(topics=["orders"], min_splits=min_splits, max_split_offsets=most_offsets)
    splits = cut_into_splits(given_, request, split_bytes)
    total_offsets = sum(stretch.end_offset for stretch in given_)
    assert len(splits) >= min(min_splits, total_offsets)
    if most_offsets is None or total_offsets <= most_offsets:
        return
    for split in splits:
        ranges = [(one.first_offset, one.end_offset) for one in split.stretches]
        assert 0 < sum(end - first for first, end in ranges) <= most_offsets
    for whole in given_:
        parts = [
            part
            for split in splits
            for part in split.stretches
            if part.partition == whole.partition
        ]
        assert parts[0].first_offset == 0
        assert parts[-1].end_offset == whole.end_offset
        assert all(one.end_offset == next_.first_offset for one, next_ in pairwise(parts))
        for part in parts:
            check_held(part, whole)


def check_held(part: Stretch, whole: Stretch) -> None:
    """Every extent with a wanted offset is there, and all that was rolled back is known."""

    def overlaps(first: int, end: int) -> bool:
        return first < part.end_offset and end > part.first_offset

    extents = [extent for extent in whole.extents if overlaps(*held(extent))]
    assert [place(extent) for extent in part.extents] == [place(extent) for extent in extents]
    assert list(part.aborted) == [
        one for one in whole.aborted if overlaps(one.first_offset, one.last_offset + 1)
    ]


def held(extent: Extent) -> tuple[int, int]:
    if isinstance(extent, SegmentExtent):
        return extent.segment.base_offset, extent.segment.end_offset
    return extent.first_offset, extent.end_offset


def place(extent: Extent) -> tuple[str, int]:
    if isinstance(extent, SegmentExtent):
        return "segment", extent.segment.base_offset
    assert isinstance(extent, RowExtent)
    return extent.object_key, extent.byte_offset


Mark = tuple[int, str, int, int]
"""Bytes of an object."""


def marks(stretch: Stretch) -> list[Mark]:
    return [mark(int(stretch.partition), extent) for extent in stretch.extents]


def mark(partition: int, extent: Extent) -> Mark:
    if isinstance(extent, SegmentExtent):
        base = int(extent.segment.base_offset) << 32
        return partition, "segment", base | extent.start, base | extent.end
    assert isinstance(extent, RowExtent)
    return partition, extent.object_key, extent.byte_offset, extent.byte_size


def joined(found: list[Mark]) -> list[Mark]:
    whole: list[Mark] = []
    for one in found:
        if whole and one[1] == "segment" and whole[-1][:2] == one[:2] and whole[-1][3] == one[2]:
            whole[-1] = (*whole[-1][:3], one[3])
        else:
            whole.append(one)
    return whole


def check_aborted(stretch: Stretch, whole: Stretch) -> None:
    """Check that a stretch knows the aborted transactions in the offsets of its extents."""
    for extent in stretch.extents:
        if isinstance(extent, SegmentExtent):
            first, last = extent.segment.base_offset, extent.segment.last_offset
        else:
            first, last = extent.first_offset, Offset(extent.end_offset - 1)
        for one in whole.aborted:
            if one.first_offset <= last and one.last_offset >= first:
                assert one in stretch.aborted
