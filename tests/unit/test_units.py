import pytest

from stratalog.units import format_duration, format_size, parse_duration_ms, parse_size_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250", 250),
        ("250ms", 250),
        ("10s", 10_000),
        ("1.5s", 1500),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("7d", 604_800_000),
        (" 2 h ", 7_200_000),
        ("-1", -1),
    ],
)
def test_a_duration_is_read_in_every_unit(text: str, expected: int) -> None:
    assert parse_duration_ms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8", 8), ("8B", 8), ("512KiB", 524_288), ("8MiB", 8_388_608), ("8MB", 8_000_000)],
)
def test_a_size_is_read_in_every_unit(text: str, expected: int) -> None:
    assert parse_size_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "ms", "1x", "1 hour", "0.5ms", "1MiB", "1e3"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"unit|whole number"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["", "8mib", "8s", "1.3B"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"unit|whole number"):
        parse_size_bytes(text)


@pytest.mark.parametrize("value", [0, 1, 250, 1000, 90_000, 3_600_000, 604_800_000])
def test_a_formatted_duration_reads_back_as_itself(value: int) -> None:
    assert parse_duration_ms(format_duration(value)) == value


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0B"), (1000, "1000B"), (2**23, "8MiB"), (3 * 2**30, "3GiB")]
)
def test_a_size_is_formatted_in_its_largest_exact_unit(value: int, text: str) -> None:
    assert format_size(value) == text
    assert parse_size_bytes(text) == value
