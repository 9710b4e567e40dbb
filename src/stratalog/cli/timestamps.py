"""Points in time as people write and read them."""

from datetime import UTC, datetime

from stratalog.cli.errors import TimeError
from stratalog.units import parse_duration_ms


def parse_time(text: str, now_ms: int) -> int:
    """Read `10m ago`, an ISO date and time, or milliseconds since 1970. Returns milliseconds.

    A time without a zone is in the zone of this machine.
    """
    try:
        if text.endswith(" ago"):
            return now_ms - parse_duration_ms(text.removesuffix(" ago"))
        if text.isdecimal():
            return int(text)
        return int(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)
    except ValueError as error:
        raise TimeError(
            f'"{text}" is not a point in time: write "10m ago", "2025-01-31T12:00:00Z" '
            "or milliseconds since 1970"
        ) from error


def format_time(timestamp_ms: int) -> str:
    """Format as UTC to the millisecond. A year beyond Python's range stays a number."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
