"""Conditions that Spark hands down, and what of them is left to Spark."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from stratalog.scan.model import RowFilter
from stratalog.spark.filters import Wanted, take_filters

OFFSET, PARTITION, TOPIC, TIME = ("offset",), ("partition",), ("topic",), ("timestamp",)
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp()) * 1000


def rows(**given: Any) -> Wanted:
    return Wanted(rows=RowFilter(**given))


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (EqualTo(OFFSET, 5), rows(first_offset=5, end_offset=6)),
        (EqualNullSafe(OFFSET, 5), rows(first_offset=5, end_offset=6)),
        (GreaterThan(OFFSET, 5), rows(first_offset=6)),
        (GreaterThanOrEqual(OFFSET, 5), rows(first_offset=5)),
        (LessThan(OFFSET, 5), rows(end_offset=5)),
        (LessThanOrEqual(OFFSET, 5), rows(end_offset=6)),
        (In(OFFSET, (5, 5)), rows(first_offset=5, end_offset=6)),
        (EqualTo(PARTITION, 1), rows(partitions=frozenset({1}))),
        (In(PARTITION, (1, 2)), rows(partitions=frozenset({1, 2}))),
        (GreaterThan(PARTITION, 1), rows(first_partition=2)),
        (GreaterThanOrEqual(PARTITION, 1), rows(first_partition=1)),
        (LessThan(PARTITION, 1), rows(end_partition=1)),
        (LessThanOrEqual(PARTITION, 1), rows(end_partition=2)),
        (EqualTo(TOPIC, "a"), Wanted(topics=frozenset({"a"}))),
        (In(TOPIC, ("a", "b")), Wanted(topics=frozenset({"a", "b"}))),
        (IsNotNull(OFFSET), Wanted()),
        (IsNotNull(TIME), Wanted()),
    ],
)
def test_conditions_on_where_a_record_is_are_taken_exactly(
    condition: Filter, wanted: Wanted
) -> None:
    assert take_filters([condition]) == (wanted, [])


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (EqualTo(TIME, NOON), rows(first_timestamp_ms=NOON_MS, end_timestamp_ms=NOON_MS + 1)),
        (GreaterThan(TIME, NOON), rows(first_timestamp_ms=NOON_MS + 1)),
        (GreaterThanOrEqual(TIME, NOON), rows(first_timestamp_ms=NOON_MS)),
        (LessThan(TIME, NOON), rows(end_timestamp_ms=NOON_MS)),
        (LessThanOrEqual(TIME, NOON), rows(end_timestamp_ms=NOON_MS + 1)),
    ],
)
def test_conditions_on_time_are_taken_exactly(condition: Filter, wanted: Wanted) -> None:
    assert take_filters([condition]) == (wanted, [])
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5)))
    assert take_filters([type(condition)(TIME, elsewhere)]) == (wanted, [])  # type: ignore[call-arg]


@given(
    st.integers(-3000, 3000),
    st.sampled_from([EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]),
)
def test_microseconds_let_the_same_milliseconds_through(bound_us: int, kind: Any) -> None:
    compare = {
        EqualTo: "__eq__",
        GreaterThan: "__gt__",
        GreaterThanOrEqual: "__ge__",
        LessThan: "__lt__",
        LessThanOrEqual: "__le__",
    }[kind]
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=bound_us)
    wanted, left = take_filters([kind(TIME, moment)])
    assert left == []
    for time_ms in range(-5, 6):
        first, end = wanted.rows.first_timestamp_ms, wanted.rows.end_timestamp_ms
        inside = (first is None or first <= time_ms) and (end is None or time_ms < end)
        assert inside == getattr(time_ms * 1000, compare)(bound_us)


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (In(OFFSET, (9, 5)), rows(first_offset=5, end_offset=10)),
        (
            In(TIME, (NOON, NOON + timedelta(milliseconds=5))),
            rows(first_timestamp_ms=NOON_MS, end_timestamp_ms=NOON_MS + 6),
        ),
    ],
)
def test_of_some_values_the_range_around_them_is_taken_and_spark_picks(
    condition: Filter, wanted: Wanted
) -> None:
    assert take_filters([condition]) == (wanted, [condition])


@pytest.mark.parametrize(
    "condition",
    [
        EqualTo(("key",), b"a"),
        IsNotNull(("key",)),
        IsNull(OFFSET),
        Not(EqualTo(OFFSET, 5)),
        EqualTo(OFFSET, None),
        EqualNullSafe(OFFSET, None),
        In(OFFSET, (5, None)),
        In(OFFSET, ()),
        EqualTo(OFFSET, 5.5),
        EqualTo(OFFSET, True),
        GreaterThan(PARTITION, "1"),
        LessThan(TOPIC, "b"),
        EqualTo(TIME, datetime(2026, 6, 1)),
        EqualTo(("headers", "key"), "a"),
    ],
)
def test_all_other_conditions_are_left_to_spark(condition: Filter) -> None:
    assert take_filters([condition]) == (Wanted(), [condition])


def test_conditions_narrow_each_other() -> None:
    conditions = [
        GreaterThan(OFFSET, 5),
        GreaterThan(OFFSET, 3),
        LessThan(OFFSET, 20),
        LessThanOrEqual(OFFSET, 30),
        In(PARTITION, (1, 2)),
        In(PARTITION, (2, 3)),
        In(TOPIC, ("a", "b")),
        EqualTo(TOPIC, "b"),
    ]
    wanted, left = take_filters(conditions)
    assert left == []
    assert wanted == Wanted(
        rows=RowFilter(partitions=frozenset({2}), first_offset=6, end_offset=20),
        topics=frozenset({"b"}),
    )
    assert not wanted.nothing


@pytest.mark.parametrize(
    "conditions",
    [
        [EqualTo(TOPIC, "a"), EqualTo(TOPIC, "b"), EqualTo(TOPIC, "a")],
        [EqualTo(PARTITION, 1), EqualTo(PARTITION, 2), EqualTo(PARTITION, 1)],
        [GreaterThan(OFFSET, 4), LessThan(OFFSET, 5)],
        [GreaterThan(PARTITION, 4), LessThan(PARTITION, 5)],
        [EqualTo(TIME, NOON + timedelta(microseconds=1))],
    ],
)
def test_conditions_may_leave_nothing(conditions: list[Filter]) -> None:
    assert take_filters(conditions)[0].nothing


def test_one_value_is_not_nothing() -> None:
    assert not take_filters([GreaterThan(OFFSET, 3), LessThan(OFFSET, 5)])[0].nothing
