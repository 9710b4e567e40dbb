from datetime import timedelta
from random import Random

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from tests.unit.kafka.wire.samples import encoded, plain, sample

from stratalog.kafka.registry import served
from stratalog.kafka.wire.api import ApiKey
from stratalog.kafka.wire.schema_writer import write_response

EVERY_RESPONSE = [
    (key, version)
    for key, versions in served().items()
    if key not in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA)
    for version in range(versions.first, versions.last + 1)
]


@pytest.mark.parametrize(("key", "version"), EVERY_RESPONSE)
def test_a_response_is_written_as_kio_writes_it(key: ApiKey, version: int) -> None:
    random = Random(version)
    for _ in range(5):
        entity = sample(load_response_schema(key, version), random)
        durations = ("throttle_time", "heartbeat_interval")
        given = {name: getattr(entity, name) for name in durations if hasattr(entity, name)}
        values = {**plain(entity), **given}
        assert b"".join(write_response(key, version, values)) == encoded(entity)


def test_fields_that_a_version_lacks_are_left_out_and_missing_ones_defaulted() -> None:
    values = {
        "error_code": ErrorCode.none,
        "producer_id": 7,
        "producer_epoch": 0,
        "of_a_later_version": "x",
    }
    schema = load_response_schema(ApiKey.INIT_PRODUCER_ID, 0)
    expected = schema(
        throttle_time=timedelta(0), error_code=ErrorCode.none, producer_id=7, producer_epoch=0
    )  # type: ignore[call-arg]
    assert write_response(ApiKey.INIT_PRODUCER_ID, 0, values) == [encoded(expected)]


def test_a_missing_value_without_a_default_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="error_code"):
        write_response(ApiKey.INIT_PRODUCER_ID, 0, {"producer_id": 7})
