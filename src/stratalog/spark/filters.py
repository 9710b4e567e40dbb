"""Conditions on rows that Spark hands down, as ranges that a scan skips by. Pure.

A condition is either kept to exactly, or Spark is left to evaluate it, or both: the range around
the values of an `IN` saves reading, and Spark still picks the values. Topic, partition, offset and
timestamp are never null, so a comparison with a value is never unknown.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from stratalog.scan.model import RowFilter, ScanColumn

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_US_PER_MS = 1000

Bounds: TypeAlias = tuple[int | None, int | None]
"""The first value inside, and the first one beyond. None is no bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The rows that all conditions so far let through, or a few more."""

    rows: RowFilter = field(default_factory=RowFilter)
    topics: frozenset[str] | None = None

    @property
    def nothing(self) -> bool:
        rows = self.rows
        return (
            self.topics == frozenset()
            or rows.partitions == frozenset()
            or _is_empty(rows.first_partition, rows.end_partition)
            or _is_empty(rows.first_offset, rows.end_offset)
            or _is_empty(rows.first_timestamp_ms, rows.end_timestamp_ms)
        )


def take_filters(filters: Iterable[Filter]) -> tuple[Wanted, list[Filter]]:
    """What a scan leaves out, and the conditions that Spark has to evaluate still."""
    wanted = Wanted()
    left: list[Filter] = []
    for condition in filters:
        taken = _take(wanted, condition)
        wanted = wanted if taken is None else taken[0]
        if taken is None or not taken[1]:
            left.append(condition)
    return wanted, left


def _take(wanted: Wanted, condition: Any) -> tuple[Wanted, bool] | None:
    """With this condition too, and whether exactly so. None if it is nothing for a scan."""
    column = ".".join(getattr(condition, "attribute", ()))
    if isinstance(condition, IsNotNull):
        return (wanted, True) if column in _COLUMNS else None
    take = _COLUMNS.get(column)
    if take is None or not isinstance(condition, _COMPARISONS):
        return None
    return take(wanted, condition)


def _take_topic(wanted: Wanted, condition: Any) -> tuple[Wanted, bool] | None:
    values = _values(condition, str)
    if values is None:
        return None
    topics = frozenset(values)
    if wanted.topics is not None:
        topics &= wanted.topics
    return replace(wanted, topics=topics), True


def _take_partition(wanted: Wanted, condition: Any) -> tuple[Wanted, bool] | None:
    values = _compared(condition, int)
    if values is None:
        return None
    if isinstance(condition, _EQUALITIES):
        partitions = frozenset(values)
        if wanted.rows.partitions is not None:
            partitions &= wanted.rows.partitions
        return replace(wanted, rows=replace(wanted.rows, partitions=partitions)), True
    first, end = _bounds(condition, min(values), max(values))
    rows = replace(
        wanted.rows,
        first_partition=_later(wanted.rows.first_partition, first),
        end_partition=_sooner(wanted.rows.end_partition, end),
    )
    return replace(wanted, rows=rows), True


def _take_offset(wanted: Wanted, condition: Any) -> tuple[Wanted, bool] | None:
    values = _compared(condition, int)
    if not values:
        return None
    first, end = _bounds(condition, min(values), max(values))
    rows = replace(
        wanted.rows,
        first_offset=_later(wanted.rows.first_offset, first),
        end_offset=_sooner(wanted.rows.end_offset, end),
    )
    return replace(wanted, rows=rows), len(values) == 1


def _take_timestamp(wanted: Wanted, condition: Any) -> tuple[Wanted, bool] | None:
    moments = _compared(condition, datetime)
    if not moments or any(moment.tzinfo is None for moment in moments):
        return None
    values = [(moment - _EPOCH) // _MICROSECOND for moment in moments]
    first_us, end_us = _bounds(condition, min(values), max(values))
    # Times are whole milliseconds: the first one inside, or beyond, is the next whole one.
    rows = replace(
        wanted.rows,
        first_timestamp_ms=_later(wanted.rows.first_timestamp_ms, _whole_ms(first_us)),
        end_timestamp_ms=_sooner(wanted.rows.end_timestamp_ms, _whole_ms(end_us)),
    )
    return replace(wanted, rows=rows), len(values) == 1


_COLUMNS: Mapping[str, Callable[[Wanted, Any], tuple[Wanted, bool] | None]] = {
    ScanColumn.TOPIC.value: _take_topic,
    ScanColumn.PARTITION.value: _take_partition,
    ScanColumn.OFFSET.value: _take_offset,
    ScanColumn.TIMESTAMP.value: _take_timestamp,
}
_EQUALITIES = (EqualTo, EqualNullSafe, In)
_COMPARISONS = (*_EQUALITIES, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


def _values(condition: Any, kind: type) -> list[Any] | None:
    """What a column must be equal to. None if the condition is no equality."""
    return _compared(condition, kind) if isinstance(condition, _EQUALITIES) else None


def _compared(condition: Any, kind: type) -> list[Any] | None:
    """The values of a condition, if all of them are of one kind. A null is none."""
    values = list(condition.value) if isinstance(condition, In) else [condition.value]
    if not all(isinstance(value, kind) and not isinstance(value, bool) for value in values):
        return None
    return list(dict.fromkeys(values))


def _bounds(condition: Any, least: int, most: int) -> Bounds:
    match condition:
        case GreaterThan():
            return least + 1, None
        case GreaterThanOrEqual():
            return least, None
        case LessThan():
            return None, most
        case LessThanOrEqual():
            return None, most + 1
        case _:
            return least, most + 1


def _whole_ms(microseconds: int | None) -> int | None:
    return None if microseconds is None else -(-microseconds // _US_PER_MS)


def _later(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _sooner(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)


def _is_empty(first: int | None, end: int | None) -> bool:
    return first is not None and end is not None and first >= end
