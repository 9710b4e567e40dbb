import pytest
from kio.index import load_request_schema, load_response_schema

from stratalog.kafka.handlers.api_versions import advertised
from stratalog.kafka.registry import served
from stratalog.kafka.wire.api import ApiKey

EVERY_VERSION = [
    (key, version)
    for key, versions in served().items()
    for version in range(versions.first, versions.last + 1)
]


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_the_table_says_where_flexible_versions_begin(key: ApiKey, version: int) -> None:
    schema = load_request_schema(key, version)
    assert served()[key].is_flexible(version) == schema.__flexible__
    assert served()[key].is_flexible(version) == schema.__header_schema__.__module__.endswith(
        "v2.header"
    )
    load_response_schema(key, version)


def test_produce_is_advertised_from_version_0_although_it_is_served_from_3() -> None:
    ranges = {key: (first, last) for key, first, last in advertised()}
    assert ranges[ApiKey.PRODUCE] == (0, 13)
    assert served()[ApiKey.PRODUCE].first == 3
    assert ranges[ApiKey.FETCH] == (4, 18)
