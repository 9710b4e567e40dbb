import pytest

from stratalog.kafka.handlers.shared.client_zones import zone_of_client


@pytest.mark.parametrize(
    ("client_id", "zone"),
    [
        ("app,zone=eu-1a", "eu-1a"),
        ("app, zone = eu-1a ,x=y", "eu-1a"),
        ("zone=eu-1a", "eu-1a"),
        ("app,diskless_az=eu-1a", "eu-1a"),
        ("zone=a=b", "a=b"),
        ("zone=first,diskless_az=second", "first"),
        ("zone=,diskless_az=second", "second"),
        ("app", None),
        ("app-zone=eu-1a", None),
        ("app,zone", None),
        ("app,zone=", None),
        ("", None),
        (None, None),
    ],
)
def test_the_zone_is_a_part_of_the_client_id(client_id: str | None, zone: str | None) -> None:
    assert zone_of_client(client_id) == zone
