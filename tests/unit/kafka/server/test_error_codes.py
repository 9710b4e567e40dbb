import importlib
import pkgutil
from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode

import stratalog
from stratalog.batch.errors import BatchDamagedError, UnsupportedMagicError
from stratalog.control.errors import ControlUnavailableError
from stratalog.control.log.errors import OffsetOutOfRangeError
from stratalog.errors import DamagedError, OutcomeUnknownError, StaleError, StratalogError
from stratalog.kafka.server.error_codes import code_of, fetch_code_of, message_of
from stratalog.objects.errors import BadStoreError, StoreAccessError, StoreUnavailableError
from stratalog.segment.errors import KeyMissingError
from stratalog.topic.errors import ReadOnlyTopicError, RemoteReadsOffError


def every_error() -> Iterator[type[StratalogError]]:
    rooms = "batch objects control cluster segment block topic groups kafka"
    for room in rooms.split():
        package = importlib.import_module(f"{stratalog.__name__}.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    waiting = StratalogError.__subclasses__()
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        yield kind


def test_every_error_of_ours_has_a_code() -> None:
    kinds = [kind for kind in every_error() if kind.__module__.startswith("stratalog.")]
    unknown = ErrorCode.unknown_server_error
    assert len(kinds) > 30
    assert [kind for kind in kinds if code_of(kind.__new__(kind)) is unknown] == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnsupportedMagicError(16, 1), ErrorCode.invalid_record),
        (StoreUnavailableError("away"), ErrorCode.kafka_storage_error),
        (ControlUnavailableError("away"), ErrorCode.kafka_storage_error),
        (StoreAccessError("no key"), ErrorCode.kafka_storage_error),
        (BadStoreError("not to be opened here"), ErrorCode.kafka_storage_error),
        (OutcomeUnknownError("lost"), ErrorCode.request_timed_out),
        (StaleError("old"), ErrorCode.kafka_storage_error),
        (OffsetOutOfRangeError("far"), ErrorCode.offset_out_of_range),
        (RemoteReadsOffError("off"), ErrorCode.kafka_storage_error),
        (KeyMissingError("no key"), ErrorCode.kafka_storage_error),
        (ReadOnlyTopicError("read-only"), ErrorCode.policy_violation),
        (KeyError("ours"), ErrorCode.unknown_server_error),
    ],
)
def test_the_most_particular_class_decides(error: Exception, code: ErrorCode) -> None:
    assert code_of(error) is code


@pytest.mark.parametrize("error", [BatchDamagedError(0, "x"), DamagedError("x")])
def test_damage_is_corrupt_to_consumers(error: StratalogError) -> None:
    assert fetch_code_of(error) is ErrorCode.corrupt_message


def test_what_can_be_retried_has_a_code_that_clients_retry() -> None:
    assert code_of(StoreUnavailableError("away")).retriable
    assert code_of(OutcomeUnknownError("lost")).retriable


def test_readers_of_a_tier_that_is_off_come_back_and_writers_to_a_read_only_topic_do_not() -> None:
    assert code_of(RemoteReadsOffError("off")).retriable
    assert not code_of(ReadOnlyTopicError("read-only")).retriable


def test_only_errors_of_ours_tell_their_message() -> None:
    assert message_of(StoreUnavailableError("the store is away")) == "the store is away"
    assert "secret" not in message_of(ValueError("secret"))
