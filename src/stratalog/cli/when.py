"""A point in time as people write it."""

from datetime import UTC, datetime

from stratalog.cli.errors import TimeError
from stratalog.units import parse_duration_ms


def parse_when(text: str, now_ms: int) -> int:
    """Milliseconds since 1970 from `10m ago`, from an ISO date and time, or from themselves.

    A time without a zone is meant in the zone of this machine.
    """
    try:
        if text.endswith(" ago"):
            return now_ms - parse_duration_ms(text.removesuffix(" ago"))
        if text.isdecimal():
            return int(text)
        return int(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)
    except ValueError as error:
        raise TimeError(
            f'"{text}" is no point in time: write "10m ago", "2025-01-31T12:00:00Z" '
            "or milliseconds since 1970"
        ) from error


def iso(timestamp_ms: int) -> str:
    """UTC to the millisecond; years that Python cannot name stay a number."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
