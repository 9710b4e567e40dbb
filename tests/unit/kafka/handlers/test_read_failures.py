import logging
from typing import Any

import pytest
from tests.unit.kafka.handlers.desk import Desk
from tests.unit.kafka.handlers.read_requests import ORDERS, fetch, offsets, wanted

from stratalog.control.log.errors import OffsetOutOfRangeError
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.errors import StratalogError
from stratalog.kafka.server.read_failures import ReadFailures
from stratalog.kafka.wire.api import ApiKey
from stratalog.objects.errors import StoreUnavailableError
from stratalog.segment.errors import ManifestDamagedError
from stratalog.testing.clock import ManualClock
from stratalog.topic.errors import remote_reads_off


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_the_same_trouble_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    failures = ReadFailures(clock)
    for seconds in (0, 59.9, 0.1):
        await clock.advance(seconds)
        failures.note("orders", 3, ManifestDamagedError("object a.rsm-manifest is no JSON"))
        failures.note("orders", 4, ManifestDamagedError("object b.rsm-manifest is no JSON"))
    first = [
        "orders-3 cannot be read: object a.rsm-manifest is no JSON",
        "orders-4 cannot be read: object b.rsm-manifest is no JSON",
    ]
    assert lines(caplog) == first * 2


async def test_a_store_that_is_away_is_told_once_for_all_partitions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = ReadFailures(ManualClock())
    for partition in range(100):
        failures.note("orders", partition, StoreUnavailableError("s3://bucket does not answer"))
    assert lines(caplog) == ["orders-0 cannot be read: s3://bucket does not answer"]


@pytest.mark.parametrize("error", [UnknownTopicError("no topic"), OffsetOutOfRangeError("beyond")])
async def test_what_clients_do_wrong_is_not_told(
    caplog: pytest.LogCaptureFixture, error: StratalogError
) -> None:
    ReadFailures(ManualClock()).note("orders", 0, error)
    assert lines(caplog) == []


async def test_what_is_remembered_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    failures = ReadFailures(ManualClock())
    for partition in (*range(1001), 1, 0):
        failures.note("orders", partition, ManifestDamagedError("rotten"))
    assert lines(caplog)[1001:] == ["orders-0 cannot be read: rotten"]


async def fetched(desk: Desk) -> Any:
    asked = wanted("orders", ORDERS, 5)
    return await desk.ask(ApiKey.FETCH, 12, **fetch(asked))


async def test_the_log_says_why_a_fetch_fails(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    await desk.control.topics.create("orders", partition_count=3, configs={})
    desk.reads.error = remote_reads_off()
    await fetched(desk)
    [line] = lines(caplog)
    assert line.startswith("orders-0 cannot be read:")
    assert "remote.reads" in line


async def test_the_log_says_why_a_look_up_by_time_fails(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    await desk.control.topics.create("orders", partition_count=3, configs={})
    desk.offsets.time_failure = ManifestDamagedError("object a.rsm-manifest is no JSON")
    await offsets(desk, 900, partition=2)
    assert lines(caplog) == ["orders-2 cannot be read: object a.rsm-manifest is no JSON"]
