import pytest

from stratalog.cli.errors import TimeError
from stratalog.cli.timestamps import format_time, parse_time

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10m ago", NOW_MS - 600_000),
        ("1.5h ago", NOW_MS - 5_400_000),
        ("1234", 1234),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T01:00:00.5+01:00", 500),
    ],
)
def test_a_point_in_time_is_read_in_every_form(text: str, expected: int) -> None:
    assert parse_time(text, NOW_MS) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "10x ago", "ago", "-5", "2025-13-01"])
def test_what_is_no_point_in_time_is_refused(text: str) -> None:
    with pytest.raises(TimeError, match="10m ago"):
        parse_time(text, NOW_MS)


def test_times_are_shown_in_utc_to_the_millisecond() -> None:
    assert format_time(NOW_MS + 7) == "2023-11-14T22:13:20.007Z"


def test_a_time_beyond_the_calendar_is_shown_as_its_number() -> None:
    assert format_time(2**62) == str(2**62)
