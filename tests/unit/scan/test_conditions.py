"""Conditions as people write them, and the ranges that a scan skips by."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.scan.rig import NOW_MS, ScanRig

from stratalog.scan.conditions import parse_conditions
from stratalog.scan.errors import ScanRefusedError
from stratalog.scan.model import RowFilter

JUNE_MS = 1_780_272_000_000
"""The first moment of June 2026."""


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("offset = 5", RowFilter(first_offset=5, end_offset=6)),
        ("OFFSET == 5", RowFilter(first_offset=5, end_offset=6)),
        ("offset>5 and offset<=9", RowFilter(first_offset=6, end_offset=10)),
        ("5 < offset AND 9 >= offset", RowFilter(first_offset=6, end_offset=10)),
        ("offset BETWEEN 5 AND 9 AND partition = 1", RowFilter(
            first_offset=5, end_offset=10, partitions=frozenset({1}))),
        ("offset >= 5 AND offset >= 7L", RowFilter(first_offset=7)),
        ("offset IN (5)", RowFilter(first_offset=5, end_offset=6)),
        ("partition IN (0, 3)", RowFilter(partitions=frozenset({0, 3}))),
        ("partition IN (0, 3) AND partition = 3", RowFilter(partitions=frozenset({3}))),
        ("partition < 4 AND partition >= 1", RowFilter(first_partition=1, end_partition=4)),
        ("timestamp >= '2026-06-01T00:00:00Z'", RowFilter(first_timestamp_ms=JUNE_MS)),
        ("timestamp < '2026-06-01 02:00:00+02:00'", RowFilter(end_timestamp_ms=JUNE_MS)),
        (f"timestamp > {JUNE_MS}", RowFilter(first_timestamp_ms=JUNE_MS + 1)),
        ("timestamp > '2026-06-01T00:00:00.000001Z'", RowFilter(first_timestamp_ms=JUNE_MS + 1)),
        ("timestamp <= '2026-06-01T00:00:00.000999Z'", RowFilter(end_timestamp_ms=JUNE_MS + 1)),
        ("timestamp = '2026-06-01T00:00:00Z'", RowFilter(
            first_timestamp_ms=JUNE_MS, end_timestamp_ms=JUNE_MS + 1)),
        ("timestamp = '2026-06-01T00:00:00.0005Z'", RowFilter(
            first_timestamp_ms=JUNE_MS + 1, end_timestamp_ms=JUNE_MS + 1)),
    ],
)  # fmt: skip
def test_a_condition_becomes_a_range(text: str, rows: RowFilter) -> None:
    assert parse_conditions(text) == rows


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "ends too early"),
        ("offset", "ends too early"),
        ("offset >", "ends too early"),
        ("offset > 5 AND", "ends too early"),
        ("offset > 5 OR offset < 2", "is not understood at 'OR'"),
        ("offset > 5 offset < 2", "is not understood at 'offset'"),
        ("offset != 5", "is not understood at '!= 5'"),
        ("NOT offset = 5", "is not understood at 'offset'"),
        ("offset IN 5", "is not understood at '5'"),
        ("offset IN (5; 6)", "is not understood at '; 6)'"),
        ("offset IN (5 6)", "is not understood at '6'"),
        ("offset IN (5, 6)", "IN with several values cannot be skipped by"),
        ("offset IN (5, 6", "ends too early"),
        ("key = 'a'", "is about 'key'"),
        ("offset = 'a'", "compared with 'a', which is no whole number"),
        ("partition IN (1, x)", "compared with x, which is no whole number"),
        ("timestamp > '2026-06-01'", "write a time with its zone, such as"),
        ("timestamp > 'yesterday'", "write a time with its zone, such as"),
        ("timestamp > now", "no whole number"),
    ],
)
def test_what_is_not_understood_is_refused_and_what_can_be_is_told(text: str, told: str) -> None:
    with pytest.raises(ScanRefusedError) as caught:
        parse_conditions(text)
    assert told in str(caught.value)


_COMPARE = {
    "=": lambda one, other: one == other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}
_MOMENTS = st.integers(-3000, 3000).map(
    lambda us: datetime(2026, 6, 1, tzinfo=UTC) + timedelta(microseconds=us)
)


@given(st.lists(st.tuples(st.sampled_from(sorted(_COMPARE)), _MOMENTS), min_size=1, max_size=3))
def test_times_inside_are_those_for_which_every_comparison_holds(
    conditions: list[tuple[str, datetime]],
) -> None:
    rows = parse_conditions(
        " AND ".join(f"timestamp {sign} '{moment.isoformat()}'" for sign, moment in conditions)
    )
    for ms in range(JUNE_MS - 5, JUNE_MS + 6):
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
        first, end = rows.first_timestamp_ms, rows.end_timestamp_ms
        inside = (first is None or ms >= first) and (end is None or ms < end)
        assert inside == all(_COMPARE[sign](at, moment) for sign, moment in conditions)


@pytest.mark.parametrize(
    "text",
    [
        "offset > 5 AND offset < 6",
        "partition >= 2 AND partition < 2",
        "timestamp > 7 AND timestamp < 8",
        "partition = 1 AND partition = 0",
    ],
)
async def test_conditions_that_nothing_meets_read_nothing(rig: ScanRig, text: str) -> None:
    topic = await rig.topic(partitions=2)
    await rig.write(topic, {0: [10], 1: [10]})
    plan = await rig.plan(rows=parse_conditions(text))
    assert (plan.splits, plan.ranges) == ([], [])


async def test_records_are_those_for_which_the_condition_holds(rig: ScanRig) -> None:
    topic = await rig.topic(partitions=2)
    await rig.write(topic, {0: [10, 20], 1: [30]})
    await rig.convert(topic)
    await rig.write(topic, {0: [40]})
    rows = parse_conditions(
        f"partition = 0 AND offset >= 5 AND timestamp < {NOW_MS + 62_000} AND timestamp > {NOW_MS}"
    )
    found = await rig.rows(rows=rows)
    assert [(row["partition"], row["offset"]) for row in found] == [
        *((0, offset) for offset in range(5, 32)),
    ]
