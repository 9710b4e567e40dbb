from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from tests.unit.checks.snapshots import CREATED_MS, STATE, row

from stratalog.checks.promises import acknowledged_is_readable
from stratalog.checks.report import Problem, Promise, Severity
from stratalog.checks.segment_chain import SegmentChain
from stratalog.checks.segment_promises import (
    epochs_agree,
    epochs_rise,
    manifest_fits_row,
    migration_holds,
    objects_fit_manifest,
    segment_is_legal,
    sizes_add_up,
)
from stratalog.control.log.model import Coordinates, PartitionState
from stratalog.control.segments.model import EpochStart, Segment, SegmentState, SegmentUploaded
from stratalog.ids import LeaderEpoch, Offset, PartitionIndex, SegmentId, TopicId
from stratalog.objects.store import ObjectInfo
from stratalog.segment.chunk_index import FixedChunks, VariableChunks
from stratalog.segment.epoch_checkpoint import epochs_between
from stratalog.segment.key_ring import EncryptionHeader
from stratalog.segment.manifest import IndexRange, Manifest
from stratalog.segment.model import IndexKind

HYBRID = replace(
    STATE,
    log_start=Offset(3),
    remote_end=Offset(30),
    block_start=Offset(30),
    leader_epoch=LeaderEpoch(4),
)


def epochs(*pairs: tuple[int, int]) -> list[EpochStart]:
    return [EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in pairs]


LINEAGE = epochs((0, 0), (2, 15), (4, 30))


def segment(base: int, last: int, **changes: Any) -> Segment:
    values: dict[str, Any] = {
        "segment_id": SegmentId(UUID(int=base)),
        "topic_id": TopicId(UUID(int=1)),
        "partition": PartitionIndex(0),
        "base_offset": Offset(base),
        "last_offset": Offset(last),
        "size_bytes": 500,
        "max_timestamp": CREATED_MS,
        "leader_epochs": epochs_between(LINEAGE, base, last),
        "key_base": f"segments/{base}",
        "state": SegmentState.COPY_FINISHED,
        "chained": True,
        "owned": True,
        "added_ms": 0,
        "changed_ms": 0,
        "uploaded": SegmentUploaded(manifest="{}", stored_bytes=1002, has_aborted=False),
    }
    return Segment(**values | changes)


CHAIN = [segment(0, 9), segment(10, 19), segment(20, 29)]
ROWS = [row(30, 39, epoch=4)]


def walked(
    segments: list[Segment],
    rows: list[Coordinates] = ROWS,
    *,
    before: PartitionState = HYBRID,
    after: PartitionState | None = None,
) -> list[Problem]:
    walk = SegmentChain(before, LINEAGE)
    for each in segments:
        walk.step(each)
    for one in rows:
        if one.last_offset >= before.block_start:
            walk.meet(one)
    return walk.finish(after or before)


def texts(problems: list[Problem], promise: Promise) -> list[str]:
    assert {problem.promise for problem in problems} <= {promise}
    return [problem.text for problem in problems]


# The chain.


def test_a_chain_from_the_log_start_to_the_remote_end_is_whole() -> None:
    assert walked(CHAIN) == []
    assert walked(CHAIN[1:], before=replace(HYBRID, log_start=Offset(10))) == []
    assert walked(CHAIN[2:], before=replace(HYBRID, log_start=Offset(29))) == []


def test_a_partition_that_starts_in_its_blocks_has_no_chain() -> None:
    assert walked([], before=replace(HYBRID, log_start=Offset(30))) == []
    assert walked([], before=replace(HYBRID, log_start=Offset(35))) == []


@pytest.mark.parametrize(
    ("chain", "missing"),
    [
        (CHAIN[1:], "offsets 3 to 9"),
        ([CHAIN[0], CHAIN[2]], "offsets 10 to 19"),
        (CHAIN[:2], "offsets 20 to 29"),
        ([], "offsets 3 to 29"),
        ([CHAIN[0], segment(11, 19), CHAIN[2]], "offsets 10 to 10"),
    ],
)
def test_a_gap_in_the_chain_is_found(chain: list[Segment], missing: str) -> None:
    assert texts(walked(chain), Promise.DENSE) == [f"{missing} are in no segment"]


def test_an_offset_in_two_segments_is_found() -> None:
    problems = walked([CHAIN[0], segment(9, 19), CHAIN[2]])
    assert texts(problems, Promise.ONE_VALUE) == [
        "offsets 9 to 9 are in two segments, segments/0 and segments/9"
    ]


def test_segments_of_another_cluster_may_begin_inside_each_other() -> None:
    theirs = [segment(0, 9), segment(9, 19), segment(20, 29)]
    theirs = [replace(each, store_url="file:/theirs") for each in theirs]
    assert walked(theirs) == []
    inside = replace(segment(12, 15), store_url="file:/theirs")
    assert texts(walked([*theirs[:2], inside, theirs[2]]), Promise.ONE_VALUE)


def test_a_chain_beyond_the_remote_end_is_found() -> None:
    problems = walked([*CHAIN[:2], segment(20, 30, leader_epochs=epochs((2, 20), (4, 30)))], [])
    assert texts(problems, Promise.BOUNDARIES) == ["segments reach 31, after remote_end 30"]


def test_a_segment_below_the_start_is_waste() -> None:
    problems = walked(CHAIN, before=replace(HYBRID, log_start=Offset(10)))
    assert texts(problems, Promise.BOUNDARIES) == ["segment 0 to 9 ends before log_start 10"]
    assert problems[0].severity is Severity.WASTE


def test_an_offset_in_a_segment_and_in_a_row_is_found() -> None:
    problems = walked(CHAIN, [row(28, 39)])
    (text,) = texts(problems, Promise.ONE_VALUE)
    assert text.startswith("offsets 28 to 29 are in a row, of blocks/")
    overlapping = replace(HYBRID, block_start=Offset(20))
    assert walked(CHAIN, [row(20, 29), row(30, 39)], before=overlapping) != []


def test_rows_that_a_segment_replaced_are_on_their_way_out() -> None:
    assert walked(CHAIN, [row(20, 29), *ROWS]) == []


# A chain that changes while it is read.


def test_segments_that_retention_took_meanwhile_are_not_missed() -> None:
    after = replace(HYBRID, log_start=Offset(20))
    assert walked(CHAIN[2:], after=after) == []
    assert walked([CHAIN[0], CHAIN[2]], after=after) == []
    almost = replace(HYBRID, log_start=Offset(19))
    assert texts(walked(CHAIN[2:], after=almost), Promise.DENSE) == [
        "offsets 19 to 19 are in no segment"
    ]


def test_segments_that_were_chained_meanwhile_are_no_surprise() -> None:
    before = replace(HYBRID, remote_end=Offset(20), block_start=Offset(20))
    rows = [row(20, 29), row(30, 39)]
    assert walked(CHAIN, rows, before=before, after=HYBRID) == []
    assert walked(CHAIN[:2], rows, before=before, after=HYBRID) == []
    assert walked(CHAIN, rows, before=before, after=before) != []


# Acknowledged offsets.


@pytest.mark.parametrize(("base", "last"), [(0, 2), (3, 39), (25, 35), (30, 39)])
def test_an_acknowledged_batch_is_in_segments_and_rows(base: int, last: int) -> None:
    assert acknowledged_is_readable(Offset(base), Offset(last), HYBRID, [*CHAIN, *ROWS]) == []


def test_an_acknowledged_batch_that_is_in_neither_is_lost() -> None:
    lost = acknowledged_is_readable(Offset(25), Offset(35), HYBRID, CHAIN)
    assert "offset 30 was acknowledged" in lost[0].text
    lost = acknowledged_is_readable(Offset(5), Offset(35), HYBRID, [*CHAIN[1:], *ROWS])
    assert "offset 5 was acknowledged" in lost[0].text


# Rows of segments.


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"state": SegmentState.DELETE_STARTED}, "although it is DELETE_STARTED"),
        ({"uploaded": None}, "although its row has no manifest"),
        ({"last_offset": Offset(9)}, "it ends before it begins"),
        ({"size_bytes": 0}, "its log has 0 bytes"),
    ],
)
def test_a_chained_segment_was_finished(changes: dict[str, Any], text: str) -> None:
    assert segment_is_legal(CHAIN[1]) == []
    (problem,) = segment_is_legal(replace(CHAIN[1], **changes))
    assert problem.text.endswith(text)


@pytest.mark.parametrize(("segment_bytes", "good"), [(1999, False), (2000, True), (2001, False)])
def test_a_partition_is_as_large_as_its_segments_and_rows(segment_bytes: int, good: bool) -> None:
    assert (sizes_add_up(STATE, segment_bytes, 1000) == []) == good


def test_offsets_that_fit_no_migration_state_are_found() -> None:
    assert migration_holds(HYBRID) == []
    assert migration_holds(replace(HYBRID, migrating=True)) != []


# Epochs.


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (0, 99, [(0, 0), (2, 15), (4, 30)]),
        (0, 14, [(0, 0)]),
        (14, 15, [(0, 14), (2, 15)]),
        (15, 29, [(2, 15)]),
        (31, 40, [(4, 31)]),
    ],
)
def test_epochs_are_cut_to_the_offsets(
    first: int, last: int, expected: list[tuple[int, int]]
) -> None:
    assert epochs_between(LINEAGE, first, last) == epochs(*expected)


def test_an_epoch_without_records_is_not_seen() -> None:
    assert epochs_between(epochs((1, 0), (2, 5), (3, 5)), 0, 9) == epochs((1, 0), (3, 5))


def test_epochs_of_a_segment_are_those_of_its_partition() -> None:
    assert epochs_agree(CHAIN[1], LINEAGE, "the partition") == []
    # Kafka cuts its lineage where the log starts, perhaps inside a segment.
    assert epochs_agree(CHAIN[1], epochs((2, 17)), "the partition") == []
    for other in (epochs((0, 0)), epochs((0, 0), (2, 14)), epochs((0, 0), (3, 15)), []):
        assert len(epochs_agree(CHAIN[1], other, "the partition")) == 1
    nowhere = replace(CHAIN[1], leader_epochs=())
    (problem,) = epochs_agree(nowhere, LINEAGE, "the partition")
    assert "segment 10 to 19 has no epochs" in problem.text
    (problem,) = epochs_agree(CHAIN[1], epochs((4, 30)), "the partition")
    assert "the partition none" in problem.text


@pytest.mark.parametrize(
    ("lineage", "good"),
    [
        (LINEAGE, True),
        (epochs((0, 0), (3, 30), (4, 30)), True),
        (epochs((0, 0), (4, 30), (4, 31)), False),
        (epochs((0, 15), (4, 14)), False),
        (epochs((0, 0), (3, 30)), False),
        (epochs((0, 0), (5, 30)), False),
        ([], False),
    ],
)
def test_epochs_rise_up_to_the_partitions_own(lineage: list[EpochStart], good: bool) -> None:
    assert (epochs_rise(HYBRID, lineage, HYBRID) == []) == good


def test_an_epoch_that_began_meanwhile_is_no_surprise() -> None:
    after = replace(HYBRID, leader_epoch=LeaderEpoch(5))
    assert epochs_rise(HYBRID, LINEAGE, after) == []
    assert epochs_rise(HYBRID, [*LINEAGE, *epochs((5, 40))], after) == []


# Objects.

PLACES = {
    IndexKind.OFFSET: IndexRange(0, 8),
    IndexKind.TIMESTAMP: IndexRange(8, 12),
    IndexKind.PRODUCER_SNAPSHOT: IndexRange(20, 10),
    IndexKind.LEADER_EPOCH: IndexRange(30, 10),
}
PLAIN = Manifest(
    chunks=FixedChunks(
        chunk_bytes=500, original_bytes=500, stored_chunk_bytes=500, final_stored_bytes=500
    ),
    indexes=PLACES,
    compressed=False,
    encryption=None,
)
COMPRESSED = replace(
    PLAIN,
    chunks=VariableChunks(chunk_bytes=500, original_bytes=500, stored_sizes=(100,)),
    compressed=True,
)
SEALED = replace(COMPRESSED, encryption=EncryptionHeader(key_id="key", sealed_key=b"x", aad=b"y"))


def stored(log: int, indexes: int = 40, manifest: int = 2) -> dict[str, ObjectInfo]:
    sizes = {".log": log, ".indexes": indexes, ".rsm-manifest": manifest}
    return {
        f"segments/10{suffix}": ObjectInfo(
            key=f"segments/10{suffix}", size_bytes=size, modified_ms=0, etag="e"
        )
        for suffix, size in sizes.items()
        if size
    }


@pytest.mark.parametrize(("size_bytes", "has_aborted"), [(0, False), (34, True)])
def test_a_transaction_index_counts_by_its_size(size_bytes: int, has_aborted: bool) -> None:
    places = {**PLACES, IndexKind.TRANSACTION: IndexRange(40, size_bytes)}
    uploaded = SegmentUploaded(manifest="{}", stored_bytes=542, has_aborted=has_aborted)
    subject = replace(CHAIN[1], size_bytes=500, uploaded=uploaded)
    assert manifest_fits_row(subject, replace(PLAIN, indexes=places)) == []
    wrong = replace(subject, uploaded=replace(uploaded, has_aborted=not has_aborted))
    assert len(manifest_fits_row(wrong, replace(PLAIN, indexes=places))) == 1


def owned(stored_bytes: int) -> Segment:
    uploaded = SegmentUploaded(manifest="{}", stored_bytes=stored_bytes, has_aborted=False)
    return replace(CHAIN[1], uploaded=uploaded)


ADOPTED = replace(CHAIN[1], owned=False, store_url="file:theirs")


@pytest.mark.parametrize(
    ("subject", "manifest", "objects", "good"),
    [
        (owned(542), PLAIN, stored(500), True),
        (owned(542), PLAIN, stored(499), False),
        (owned(542), PLAIN, stored(501), False),
        (owned(542), PLAIN, stored(500, indexes=39), False),
        (owned(542), PLAIN, stored(500, indexes=41), False),
        (owned(542), PLAIN, stored(500, manifest=3), False),
        (owned(542), PLAIN, stored(0), False),
        (owned(542), PLAIN, stored(500, indexes=0), False),
        (owned(542), PLAIN, stored(500, manifest=0), False),
        # With a seek table of 20 bytes.
        (owned(162), COMPRESSED, stored(120), True),
        (owned(162), COMPRESSED, stored(119), False),
        (ADOPTED, PLAIN, stored(500, manifest=999), True),
        (ADOPTED, PLAIN, stored(501), False),
        (ADOPTED, COMPRESSED, stored(100), True),
        (ADOPTED, COMPRESSED, stored(120), True),
        (ADOPTED, COMPRESSED, stored(99), False),
        (ADOPTED, SEALED, stored(100), True),
        (ADOPTED, SEALED, stored(101), False),
        (ADOPTED, PLAIN, stored(500, manifest=0), False),
    ],
)
def test_the_objects_of_a_segment_are_as_its_manifest_says(
    subject: Segment, manifest: Manifest, objects: dict[str, ObjectInfo], good: bool
) -> None:
    assert (objects_fit_manifest(subject, manifest, objects) == []) == good
