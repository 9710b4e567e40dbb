"""Durations and sizes as people write them: `250ms`, `7d`, `8MiB`. Pure; raises ValueError."""

import re
from collections.abc import Mapping
from fractions import Fraction

DURATIONS_MS: Mapping[str, int] = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
SIZES_BYTES: Mapping[str, int] = {
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}

_QUANTITY = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")


def parse_duration_ms(text: str) -> int:
    """Parse a duration. A bare number counts milliseconds."""
    return _parse(text, DURATIONS_MS, "ms")


def parse_size_bytes(text: str) -> int:
    """Parse a size. A bare number counts bytes. MiB is 1024 × 1024 bytes, MB a million."""
    return _parse(text, SIZES_BYTES, "B")


def format_duration(milliseconds: int) -> str:
    """Write a duration in its shortest exact form: 90000 is `90s`, 3600000 is `1h`."""
    return _format(milliseconds, DURATIONS_MS)


def format_size(size_bytes: int) -> str:
    """Write a size in its shortest exact form in binary units: 8388608 is `8MiB`."""
    return _format(size_bytes, {unit: f for unit, f in SIZES_BYTES.items() if unit[1:] != "B"})


def _parse(text: str, units: Mapping[str, int], bare: str) -> int:
    match = _QUANTITY.fullmatch(text.strip())
    known = ", ".join(units)
    if match is None:
        raise ValueError(f'"{text}" is not a number with one of the units {known}')
    number, unit = match.groups()
    if (unit or bare) not in units:
        raise ValueError(f'"{unit}" is not one of the units {known}')
    value = Fraction(number) * units[unit or bare]
    if value.denominator != 1:
        raise ValueError(f'"{text}" is not a whole number of {bare}')
    return value.numerator


def _format(value: int, units: Mapping[str, int]) -> str:
    fitting = [(factor, unit) for unit, factor in units.items() if value % factor == 0]
    factor, unit = max(fitting) if value else (1, min(units, key=lambda name: units[name]))
    return f"{value // factor}{unit}"
