from dataclasses import replace
from typing import Any

import pytest
from tests.unit.checks.snapshots import (
    CREATED_MS,
    INFO,
    OBJECT_ROW,
    ROWS,
    STATE,
    batch,
    broker,
    row,
)

from stratalog.batch.header import CRC_START
from stratalog.checks.promises import (
    acknowledged_is_readable,
    batches_fill_row,
    boundaries_hold,
    boundaries_moved_forward,
    holders_are_distinct,
    object_is_accounted_for,
    object_is_whole,
    offsets_have_one_value,
    row_is_backed,
    rows_are_dense,
)
from stratalog.checks.report import Problem, Promise, Severity
from stratalog.checks.row_sequence import RowSequence
from stratalog.control.log.model import Coordinates, PartitionState, WriteTier
from stratalog.ids import LeaderEpoch, Offset


def texts(problems: list[Problem], promise: Promise) -> list[str]:
    assert {problem.promise for problem in problems} <= {promise}
    return [problem.text for problem in problems]


# 1: acknowledged is readable.


@pytest.mark.parametrize(("base", "last"), [(10, 39), (12, 12), (20, 29), (39, 39), (0, 11)])
def test_an_acknowledged_batch_is_in_the_rows_or_below_the_log_start(base: int, last: int) -> None:
    assert acknowledged_is_readable(Offset(base), Offset(last), STATE, ROWS) == []


def test_an_acknowledged_batch_in_a_gap_is_lost() -> None:
    problems = acknowledged_is_readable(Offset(20), Offset(39), STATE, [ROWS[0], ROWS[2]])
    (text,) = texts(problems, Promise.READABLE)
    assert text == "offset 20 was acknowledged and is in no segment and no row"


def test_an_acknowledged_batch_after_the_rows_is_lost() -> None:
    problems = acknowledged_is_readable(Offset(35), Offset(40), STATE, ROWS)
    (text,) = texts(problems, Promise.READABLE)
    assert text == "offset 40 was acknowledged and is in no segment and no row"


# 2 and 3: one value for each offset, and a value for each.


def test_healthy_rows_are_dense_and_have_one_value() -> None:
    assert rows_are_dense(STATE, ROWS) == []
    assert offsets_have_one_value(ROWS) == []


def test_an_empty_partition_is_dense() -> None:
    for offset in (0, 40):
        empty = replace(
            STATE,
            log_start=Offset(offset),
            block_start=Offset(offset),
            block_end=Offset(offset),
            high_watermark=Offset(offset),
        )
        assert rows_are_dense(empty, []) == []


@pytest.mark.parametrize("second", [row(19, 29), row(12, 15), row(10, 19)])
def test_rows_that_overlap_are_found(second: Coordinates) -> None:
    rows = [ROWS[0], second]
    assert "are in two rows" in texts(offsets_have_one_value(rows), Promise.ONE_VALUE)[0]
    assert any("are in two rows" in problem.text for problem in rows_are_dense(STATE, rows))


def test_a_row_inside_an_earlier_and_longer_one_is_found() -> None:
    rows = [row(10, 39), row(11, 12), row(20, 21)]
    assert len(texts(offsets_have_one_value(rows), Promise.ONE_VALUE)) == 2
    assert len(texts(rows_are_dense(STATE, rows), Promise.ONE_VALUE)) == 2


@pytest.mark.parametrize(
    ("rows", "missing"),
    [
        ([], "offsets 10 to 39"),
        (ROWS[1:], "offsets 10 to 19"),
        ([ROWS[0], ROWS[2]], "offsets 20 to 29"),
        (ROWS[:2], "offsets 30 to 39"),
        ([*ROWS[:2], row(31, 39)], "offsets 30 to 30"),
        ([*ROWS[:2], row(30, 38)], "offsets 39 to 39"),
    ],
)
def test_a_gap_is_found(rows: list[Coordinates], missing: str) -> None:
    assert texts(rows_are_dense(STATE, rows), Promise.DENSE) == [f"{missing} are in no row"]


@pytest.mark.parametrize(
    ("log_start", "remote_end", "missing"),
    [
        (10, 10, []),
        (9, 10, []),
        (0, 10, []),
        (10, 5, []),
        (9, 5, ["offsets 9 to 9 are in no row"]),
        (5, 9, ["offsets 9 to 9 are in no row"]),
        (0, 0, ["offsets 0 to 9 are in no row"]),
    ],
)
def test_offsets_between_the_segments_and_the_first_row_are_a_gap(
    log_start: int, remote_end: int, missing: list[str]
) -> None:
    state = replace(STATE, log_start=Offset(log_start), remote_end=Offset(remote_end))
    assert texts(rows_are_dense(state, ROWS), Promise.DENSE) == missing


def test_a_row_across_the_start_of_the_block_range_is_found() -> None:
    problems = rows_are_dense(STATE, [row(5, 10), row(11, 39)])
    assert texts(problems, Promise.BOUNDARIES) == ["row 5 lies across block_start 10"]


def test_rows_below_the_block_range_are_on_their_way_out() -> None:
    assert rows_are_dense(STATE, [row(0, 2), row(5, 9), *ROWS]) == []


def test_a_row_after_the_block_range_is_found() -> None:
    problems = rows_are_dense(STATE, [*ROWS, row(40, 49)])
    assert texts(problems, Promise.BOUNDARIES) == ["rows reach 50, after block_end 40"]


def test_a_row_that_ends_before_it_begins_is_found() -> None:
    problems = rows_are_dense(STATE, [*ROWS, row(40, 38)])
    assert texts(problems, Promise.DENSE) == ["row 40 ends before it begins, at 38"]


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (row(20, 29, committed_ms=CREATED_MS - 1), "row 20 was committed before row 10"),
        (row(20, 29, epoch=-1), "row 20 has epoch -1, the row before it 0"),
    ],
)
def test_times_and_epochs_do_not_go_back(second: Coordinates, text: str) -> None:
    rows = [ROWS[0], second, row(30, 39, committed_ms=CREATED_MS + 1, epoch=1)]
    assert texts(rows_are_dense(STATE, rows), Promise.BOUNDARIES) == [text]


# Rows that are read while the partition lives.


def lived_through(after: PartitionState, rows: list[Coordinates]) -> list[Problem]:
    walk = RowSequence(STATE)
    for each in rows:
        walk.step(each)
    return walk.finish(after)


def test_rows_that_retention_took_meanwhile_are_not_missed() -> None:
    after = replace(STATE, log_start=Offset(30), block_start=Offset(30))
    assert lived_through(after, ROWS[2:]) == []
    assert lived_through(after, [ROWS[0], ROWS[2]]) == []
    assert len(lived_through(replace(after, block_start=Offset(29)), [ROWS[0], ROWS[2]])) == 1


def test_a_partition_that_was_emptied_meanwhile_is_whole() -> None:
    after = replace(STATE, log_start=Offset(40), block_start=Offset(40))
    assert lived_through(after, []) == []
    assert lived_through(after, ROWS[:1]) == []


def test_rows_that_were_appended_meanwhile_are_no_surprise() -> None:
    after = replace(STATE, block_end=Offset(50), high_watermark=Offset(50))
    assert lived_through(after, [*ROWS, row(40, 49)]) == []
    assert lived_through(after, ROWS) == []
    assert len(lived_through(after, [*ROWS, row(40, 50)])) == 1


# 4: boundaries.


def test_healthy_boundaries_hold() -> None:
    assert boundaries_hold(STATE) == []


@pytest.mark.parametrize(
    ("name", "offset", "breaks"),
    [
        ("log_start", 40, False),
        ("log_start", 41, True),
        ("log_start", -1, True),
        ("remote_end", 11, True),
        ("remote_end", 41, True),
        ("block_start", 41, True),
        ("block_end", 39, True),
        ("block_end", 41, True),
        ("last_stable", 0, False),
        ("last_stable", 41, True),
    ],
)
def test_each_boundary_has_its_bounds(name: str, offset: int, breaks: bool) -> None:
    changes: dict[str, Any] = {name: offset}
    problems = boundaries_hold(replace(STATE, **changes))
    assert bool(texts(problems, Promise.BOUNDARIES)) == breaks


def test_the_block_range_of_a_local_topic_may_end_before_the_high_watermark() -> None:
    local = replace(STATE, write_tier=WriteTier.LOCAL, block_end=Offset(30))
    assert boundaries_hold(local) == []
    assert boundaries_hold(replace(local, block_start=Offset(31))) != []


def test_the_remote_end_may_pass_an_empty_block_range() -> None:
    local = replace(STATE, write_tier=WriteTier.LOCAL, block_end=Offset(10))
    assert boundaries_hold(replace(local, remote_end=Offset(40))) == []


@pytest.mark.parametrize(
    "name",
    ["log_start", "remote_end", "block_start", "block_end", "high_watermark", "last_stable"],
)
def test_boundaries_move_forward_only(name: str) -> None:
    before = getattr(STATE, name)
    assert boundaries_moved_forward(STATE, replace(STATE, **{name: before + 1})) == []
    assert boundaries_moved_forward(STATE, STATE) == []
    problems = boundaries_moved_forward(STATE, replace(STATE, **{name: before - 1}))
    assert texts(problems, Promise.BOUNDARIES) == [
        f"{name} went back from {before} to {before - 1}"
    ]


# 5: objects.


def test_a_row_is_backed_up_to_the_last_byte_of_its_object() -> None:
    assert row_is_backed(1000, OBJECT_ROW, INFO) == []
    assert "needs 1001 bytes" in texts(row_is_backed(1001, OBJECT_ROW, INFO), Promise.OBJECTS)[0]


def test_a_row_without_its_object_is_found() -> None:
    assert "not in the store" in row_is_backed(1, OBJECT_ROW, None)[0].text
    assert "no such object" in row_is_backed(1, None, INFO)[0].text
    marked = replace(OBJECT_ROW, marked_ms=CREATED_MS)
    assert "marked for deletion" in row_is_backed(1, marked, INFO)[0].text


def test_a_committed_object_is_whole_until_it_is_marked() -> None:
    assert object_is_whole(OBJECT_ROW, INFO) == []
    assert "has 999" in object_is_whole(OBJECT_ROW, replace(INFO, size_bytes=999))[0].text
    assert "not in the store" in object_is_whole(OBJECT_ROW, None)[0].text
    assert object_is_whole(replace(OBJECT_ROW, marked_ms=CREATED_MS), None) == []


@pytest.mark.parametrize(
    ("created_ms", "modified_ms", "waste"),
    [(10, 10, True), (11, 10, False), (10, 11, False)],
)
def test_an_object_without_a_row_is_waste_once_it_is_old(
    created_ms: int, modified_ms: int, waste: bool
) -> None:
    info = replace(INFO, modified_ms=modified_ms)
    problems = object_is_accounted_for(info, None, created_ms=created_ms, old_since_ms=10)
    assert [problem.severity for problem in problems] == [Severity.WASTE] * waste
    assert not object_is_accounted_for(info, OBJECT_ROW, created_ms=created_ms, old_since_ms=10)


# 6: holders.


def test_brokers_share_neither_id_nor_incarnation_nor_address() -> None:
    one, two = broker(1), broker(2)
    assert holders_are_distinct([one, two]) == []
    for shared in (
        replace(two, broker_id=one.broker_id),
        replace(two, incarnation=one.incarnation),
        replace(two, port=one.port),
    ):
        assert len(texts(holders_are_distinct([one, shared]), Promise.HOLDERS)) == 1


def test_a_dead_broker_may_have_had_the_address_of_a_live_one() -> None:
    assert holders_are_distinct([broker(1), replace(broker(2), port=9093, alive=False)]) == []


# 7, and 2 again: the bytes.


def test_batches_fill_their_row() -> None:
    assert batches_fill_row(row(10, 19), batch(4) + batch(6)) == []


def test_batches_that_make_other_offsets_than_the_row_are_found() -> None:
    for last in (18, 20):
        problems = batches_fill_row(row(10, last), batch(4) + batch(6))
        assert texts(problems, Promise.ONE_VALUE) == [
            f"row 10 ends at {last}, its batches at 19",
        ]


def test_a_flipped_bit_is_found() -> None:
    data = bytearray(batch(4) + batch(6))
    data[-1] ^= 1
    problems = batches_fill_row(row(10, 19), data)
    assert "batch at offset 14" in texts(problems, Promise.CHECKSUMS)[0]
    data[-1] ^= 1
    assert batches_fill_row(row(10, 19), data) == []
    data[CRC_START - 1] ^= 1
    assert "batch at offset 10" in batches_fill_row(row(10, 19), data)[0].text


def test_bytes_that_are_no_batches_are_found() -> None:
    assert len(texts(batches_fill_row(row(10, 19), batch(10)[:-1]), Promise.CHECKSUMS)) == 1
    assert len(texts(batches_fill_row(row(10, 19), batch(10) + b"x"), Promise.CHECKSUMS)) == 1


def test_stamped_bytes_say_what_the_row_says() -> None:
    stamped = row(10, 19)._replace(stamped=True, leader_epoch=LeaderEpoch(3))
    assert batches_fill_row(stamped, batch(10, base_offset=10, leader_epoch=3)) == []
    for data in (
        batch(10, base_offset=11, leader_epoch=3),
        batch(10, base_offset=10, leader_epoch=2),
    ):
        assert len(texts(batches_fill_row(stamped, data), Promise.ONE_VALUE)) == 1
