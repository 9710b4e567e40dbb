from dataclasses import replace

import pytest
from tests.unit.pipeline.rows import FACTS, TOPIC, TOPICS, aged

from stratalog.control.log.commit_plan import MAX_ROW_BYTES
from stratalog.control.pipeline.model import AgedPartition, UnitKind
from stratalog.ids import Offset
from stratalog.pipeline.kinds.merge import CRUMB_BYTES, MANY_OBJECTS
from stratalog.pipeline.kinds.registry import AGED_KINDS
from stratalog.pipeline.plan.selection import Reason, Selection, select
from stratalog.settings import DAY_MS, MIB, TieringSettings

SETTINGS = TieringSettings()
LEAST = SETTINGS.min_segment_bytes


def chosen(*partitions: AgedPartition, now_ms: int = 0, **changes: int) -> Selection:
    return select(partitions, TOPICS, replace(SETTINGS, **changes), now_ms, AGED_KINDS)  # type: ignore[arg-type]


def indexes(partitions: list[AgedPartition]) -> list[int]:
    return [partition.partition for partition in partitions]


@pytest.mark.parametrize(("size", "merged"), [(LEAST - 1, False), (LEAST, True)])
def test_enough_bytes_are_merged(size: int, merged: bool) -> None:
    assert bool(chosen(aged(size=size, rows=64)).by_kind["merge"]) is merged


@pytest.mark.parametrize(
    ("objects", "size", "merged"),
    [
        (65_536, 64 * MIB, False),
        (4096, 4096 * CRUMB_BYTES - 1, False),
        (4096, 4096 * CRUMB_BYTES, True),
        (1000, 100 * 1024 * 1000, True),
        (MANY_OBJECTS, LEAST, True),
    ],
)
def test_enough_bytes_in_crumbs_all_over_the_store_are_split_first(
    objects: int, size: int, merged: bool
) -> None:
    crumbs = aged(rows=max(objects, 5000), objects=objects, size=size)
    changes = {"min_segment_bytes": 1}
    assert [
        bool(chosen(crumbs, **changes).by_kind["merge"]),
        bool(chosen(crumbs, **changes).by_kind["split"]),
    ] == [
        merged,
        not merged,
    ]
    assert chosen(crumbs, now_ms=DAY_MS, **changes).by_kind["merge"], "in the end, all is merged"
    assert chosen(replace(crumbs, triggered_ms=0), **changes).by_kind["merge"]


@pytest.mark.parametrize(("age_ms", "merged"), [(DAY_MS - 1, False), (DAY_MS, True)])
def test_however_little_is_merged_when_it_is_old(age_ms: int, merged: bool) -> None:
    assert bool(chosen(aged(size=1), now_ms=age_ms).by_kind["merge"]) is merged


@pytest.mark.parametrize(("triggered_ms", "merged"), [(4, False), (5, True)])
def test_however_little_is_merged_if_it_was_there_at_a_trigger(
    triggered_ms: int, merged: bool
) -> None:
    little = aged(size=1, oldest_ms=5, triggered_ms=triggered_ms)
    assert bool(chosen(little).by_kind["merge"]) is merged
    assert not chosen(replace(little, remote_end=Offset(3))).by_kind["merge"]
    assert not chosen(replace(little, parked=True)).by_kind["merge"]


def test_a_topic_with_small_segments_need_not_wait_for_more() -> None:
    small = {TOPIC: FACTS._replace(segment_bytes=5000)}
    assert select([aged(size=5000)], small, SETTINGS, 0, AGED_KINDS).by_kind["merge"]
    assert not select([aged(size=4999)], small, SETTINGS, 0, AGED_KINDS).by_kind["merge"]


@pytest.mark.parametrize(
    ("rows", "split"), [(SETTINGS.max_rows, False), (SETTINGS.max_rows + 1, True)]
)
def test_too_many_rows_are_split(rows: int, split: bool) -> None:
    assert bool(chosen(aged(rows=rows)).by_kind["split"]) is split


def test_all_that_are_in_pieces_come_along_with_one_that_has_too_many() -> None:
    large = aged(2, rows=10, size=10 * MIB)
    selection = chosen(aged(0, rows=65), aged(1, rows=2), large)
    assert indexes(selection.by_kind["split"]) == [0, 1]
    assert selection.waiting == {Reason.TOO_LITTLE: [large]}


@pytest.mark.parametrize(
    ("size", "split"), [(100 * MAX_ROW_BYTES // 2, True), (100 * MAX_ROW_BYTES // 2 + 1, False)]
)
def test_large_pieces_are_left_alone_however_many(size: int, split: bool) -> None:
    assert (
        bool(chosen(aged(rows=100, size=size), min_segment_bytes=1 << 40).by_kind["split"]) is split
    )


def test_parked_partitions_wait() -> None:
    parked = aged(size=LEAST, parked=True)
    assert chosen(parked).waiting == {Reason.PARKED: [parked]}


def test_what_others_have_claimed_leaves_the_budget_to_the_rest() -> None:
    mine, theirs = aged(0, size=LEAST, oldest_ms=5), aged(1, size=LEAST, claimed=True)
    selection = chosen(theirs, mine, max_bytes_per_run=LEAST)
    assert selection.by_kind["merge"] == [mine]
    assert selection.waiting == {Reason.CLAIMED: [theirs]}


def test_what_follows_local_files_is_not_merged_before_they_are_uploaded() -> None:
    waiting = aged(size=LEAST, rows=64, remote_end=-1)
    assert chosen(waiting).waiting == {Reason.MIGRATING: [waiting]}
    assert chosen(aged(size=LEAST, rows=200, remote_end=-1)).by_kind["split"]


@pytest.mark.parametrize(("kind", "other"), [(UnitKind.MERGE, 1), (UnitKind.SPLIT, 0)])
def test_what_the_run_is_not_for_waits(kind: UnitKind, other: int) -> None:
    partitions = [aged(0, size=LEAST), aged(1, rows=65)]
    selection = select(partitions, TOPICS, SETTINGS, 0, AGED_KINDS, [kind])
    assert selection.waiting == {Reason.OTHER_KIND: [partitions[other]]}
    assert len(selection.by_kind["merge"] + selection.by_kind["split"]) == 1


def test_the_budget_goes_to_the_oldest_and_merges_come_first() -> None:
    young, old, split = aged(0, size=LEAST, oldest_ms=9), aged(1, size=LEAST), aged(2, rows=65)
    selection = chosen(young, old, split, max_bytes_per_run=LEAST + 999)
    assert indexes(selection.by_kind["merge"]) == [1]
    assert selection.waiting == {Reason.BUDGET: [young, split]}
    selection = chosen(young, old, split, max_bytes_per_run=2 * LEAST + 1000)
    assert indexes(selection.by_kind["merge"] + selection.by_kind["split"]) == [0, 1, 2]


@pytest.mark.parametrize(("rows", "taken"), [(9, 1), (10, 2)])
def test_the_budget_counts_rows_too(rows: int, taken: int) -> None:
    partitions = [aged(n, rows=5, size=LEAST) for n in range(2)]
    assert len(chosen(*partitions, max_batches_per_run=rows).by_kind["merge"]) == taken


def test_one_that_is_larger_than_the_budget_gets_all_of_it() -> None:
    selection = chosen(aged(0, size=LEAST), aged(1, size=LEAST), max_bytes_per_run=1)
    assert indexes(selection.by_kind["merge"]) == [0]


def test_one_that_failed_comes_after_all_that_were_there_when_it_did() -> None:
    failed = aged(0, size=9 * LEAST, oldest_ms=1, failed_ms=5)
    waited, younger = aged(1, size=LEAST, oldest_ms=4), aged(2, size=LEAST, oldest_ms=6)
    selection = chosen(failed, waited, younger, max_bytes_per_run=2 * LEAST)
    assert indexes(selection.by_kind["merge"]) == [1, 2]
    assert selection.waiting == {Reason.BUDGET: [failed]}


def test_one_that_failed_has_its_turn_again_once_the_others_have_had_theirs() -> None:
    """However large it is, and although there is always something else to be done."""
    failed = aged(0, size=9 * LEAST, oldest_ms=1, failed_ms=5)
    younger = aged(1, size=LEAST, oldest_ms=6)
    assert indexes(chosen(failed, younger, max_bytes_per_run=LEAST).by_kind["merge"]) == [0]
    assert indexes(chosen(failed, max_bytes_per_run=LEAST).by_kind["merge"]) == [0]


@pytest.mark.parametrize(("done_ms", "merges"), [(None, []), (4, []), (5, []), (6, [0])])
def test_a_split_that_was_done_since_has_had_its_turn_however_old_its_records_are(
    done_ms: int | None, merges: list[int]
) -> None:
    failed = aged(0, size=9 * LEAST, oldest_ms=1, failed_ms=5)
    split = aged(1, rows=65, oldest_ms=1, done_ms=done_ms)
    assert indexes(chosen(failed, split, max_bytes_per_run=LEAST).by_kind["merge"]) == merges


def test_a_merge_that_failed_does_not_keep_splits_waiting() -> None:
    failed, split = aged(0, size=9 * LEAST, failed_ms=5), aged(1, rows=65)
    selection = chosen(failed, split, max_bytes_per_run=LEAST)
    assert (indexes(selection.by_kind["merge"]), indexes(selection.by_kind["split"])) == ([], [1])


def test_of_those_that_failed_the_one_that_waits_longest_comes_first() -> None:
    """Whatever kind of work it is."""
    again, split = aged(0, size=9 * LEAST, failed_ms=7), aged(1, rows=65, failed_ms=5)
    selection = chosen(again, split, max_bytes_per_run=LEAST)
    assert (indexes(selection.by_kind["merge"]), indexes(selection.by_kind["split"])) == ([], [1])
    split = aged(1, rows=65, failed_ms=9)
    assert indexes(chosen(again, split, max_bytes_per_run=LEAST).by_kind["merge"]) == [0]


@pytest.mark.parametrize(("failed_ms", "first"), [(2, 0), (3, 1)])
def test_a_failure_with_rows_that_are_gone_by_now_is_none(failed_ms: int, first: int) -> None:
    before = aged(0, size=LEAST, oldest_ms=3, failed_ms=failed_ms)
    other = aged(1, size=LEAST, oldest_ms=3)
    assert indexes(chosen(before, other, max_bytes_per_run=1).by_kind["merge"]) == [first]


def test_one_that_failed_is_done_beside_the_others_if_there_is_room() -> None:
    failed, other = aged(0, size=LEAST, failed_ms=5), aged(1, size=LEAST)
    assert indexes(chosen(failed, other).by_kind["merge"]) == [0, 1]
