"""Conditions on records, written as in SQL, parsed to ranges that let a scan skip bytes. Pure.

    partition IN (0, 3) AND offset >= 100 AND timestamp < '2026-06-01T00:00:00Z'

A condition compares `partition`, `offset` and `timestamp` with values, and all comparisons must
hold. A scan gives exactly the matching records; other conditions belong into the query. A time is a
text with its zone, or a number of milliseconds since 1970.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, NoReturn

from stratalog.scan.errors import ScanRefusedError
from stratalog.scan.model import RowFilter

_TOKEN = re.compile(r"\s*(-?\d+[Ll]?|'[^']*'|[A-Za-z_]+|<=|>=|==|[<>=(),])")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_US_PER_MS = 1000
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "="}
_CAN = (
    "partition, offset and timestamp can be compared with values by =, <, <=, >, >=, IN and"
    " BETWEEN, joined by AND; put other conditions into the query"
)


class _Condition(NamedTuple):
    column: str
    values: list[str]
    sign: str
    """One of `=`, `<`, `<=`, `>`, `>=` or `in`."""


def parse_conditions(text: str) -> RowFilter:
    """Return a filter for the rows that meet all conditions."""
    rows = RowFilter()
    for condition in _Parser(text).conditions():
        rows = _narrowed(rows, condition, text)
    return rows


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0

    def conditions(self) -> Iterator[_Condition]:
        while True:
            yield from self._condition()
            if self._at == len(self._tokens):
                return
            self._expect("and")

    def _condition(self) -> Iterator[_Condition]:
        first, sign = self._next(), self._next().lower()
        if sign in _FLIPPED:
            second = self._next()
            if second.lower() in _COLUMNS:
                first, sign, second = second, _FLIPPED[sign], first
            yield _Condition(first.lower(), [second], sign)
        elif sign == "between":
            least = self._next()
            self._expect("and")
            yield _Condition(first.lower(), [least], ">=")
            yield _Condition(first.lower(), [self._next()], "<=")
        elif sign == "in":
            yield _Condition(first.lower(), list(self._list()), "in")
        else:
            self._refuse(sign)

    def _list(self) -> Iterator[str]:
        self._expect("(")
        yield self._next()
        while (sign := self._next()) == ",":
            yield self._next()
        if sign != ")":
            self._refuse(sign)

    def _next(self) -> str:
        if self._at == len(self._tokens):
            raise ScanRefusedError(f"the condition {self._text!r} ends too early: {_CAN}")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, token: str) -> None:
        found = self._next()
        if found.lower() != token:
            self._refuse(found)

    def _refuse(self, token: str) -> NoReturn:
        raise ScanRefusedError(
            f"the condition {self._text!r} is not understood at {token!r}: {_CAN}"
        )


def _tokens(text: str) -> Iterator[str]:
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            rest = text[position:].strip()
            raise ScanRefusedError(f"the condition {text!r} is not understood at {rest!r}: {_CAN}")
        yield "=" if match[1] == "==" else match[1]
        position = match.end()


def _narrowed(rows: RowFilter, condition: _Condition, text: str) -> RowFilter:
    narrow = _COLUMNS.get(condition.column)
    if narrow is None:
        raise ScanRefusedError(f"the condition {text!r} is about {condition.column!r}: {_CAN}")
    return narrow(rows, condition)


def _narrow_partition(rows: RowFilter, condition: _Condition) -> RowFilter:
    values = [_integer(condition, value) for value in condition.values]
    if condition.sign in ("=", "in"):
        wanted = frozenset(values)
        return replace(
            rows, partitions=wanted if rows.partitions is None else wanted & rows.partitions
        )
    first, end = _bounds(condition.sign, values[0])
    return replace(
        rows,
        first_partition=_later(rows.first_partition, first),
        end_partition=_sooner(rows.end_partition, end),
    )


def _narrow_offset(rows: RowFilter, condition: _Condition) -> RowFilter:
    first, end = _bounds(condition.sign, _one(condition, _integer))
    return replace(
        rows,
        first_offset=_later(rows.first_offset, first),
        end_offset=_sooner(rows.end_offset, end),
    )


def _narrow_timestamp(rows: RowFilter, condition: _Condition) -> RowFilter:
    first_us, end_us = _bounds(condition.sign, _one(condition, _microseconds))
    # Records have times in whole milliseconds, so a bound between two of them is rounded up.
    return replace(
        rows,
        first_timestamp_ms=_later(rows.first_timestamp_ms, _whole_ms(first_us)),
        end_timestamp_ms=_sooner(rows.end_timestamp_ms, _whole_ms(end_us)),
    )


_COLUMNS: Mapping[str, Callable[[RowFilter, _Condition], RowFilter]] = {
    "partition": _narrow_partition,
    "offset": _narrow_offset,
    "timestamp": _narrow_timestamp,
}


def _one(condition: _Condition, parse: Callable[[_Condition, str], int]) -> int:
    if len(condition.values) > 1:
        raise ScanRefusedError(
            f"{condition.column} IN with several values cannot be skipped by: give a range around"
            " them, and pick the values in the query"
        )
    return parse(condition, condition.values[0])


def _integer(condition: _Condition, value: str) -> int:
    try:
        return int(value.rstrip("Ll"))
    except ValueError:
        raise ScanRefusedError(
            f"{condition.column} is compared with {value}, which is no whole number"
        ) from None


def _microseconds(condition: _Condition, value: str) -> int:
    if not value.startswith("'"):
        return _integer(condition, value) * _US_PER_MS
    try:
        moment = datetime.fromisoformat(value.strip("'").strip())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ScanRefusedError(
            f"timestamp is compared with {value}: write a time with its zone, such as"
            " '2026-06-01T00:00:00Z', or milliseconds since 1970"
        )
    return (moment - _EPOCH) // _MICROSECOND


def _bounds(sign: str, value: int) -> tuple[int | None, int | None]:
    """Return the first value inside and the first one beyond. None means no bound."""
    match sign:
        case ">":
            return value + 1, None
        case ">=":
            return value, None
        case "<":
            return None, value
        case "<=":
            return None, value + 1
        case _:
            return value, value + 1


def _whole_ms(microseconds: int | None) -> int | None:
    return None if microseconds is None else -(-microseconds // _US_PER_MS)


def _later(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _sooner(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)
