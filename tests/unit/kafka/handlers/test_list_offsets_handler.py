from dataclasses import replace

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.kafka.handlers.desk import Desk
from tests.unit.kafka.handlers.read_requests import offsets

from stratalog.control.errors import ControlUnavailableError
from stratalog.ids import LeaderEpoch, PartitionIndex
from stratalog.kafka.wire.api import ApiKey
from stratalog.objects.errors import StoreUnavailableError

VERSIONS = range(1, 12)


@pytest.fixture
async def desk() -> Desk:
    desk = Desk()
    await desk.control.topics.create("orders", partition_count=3, configs={})
    return desk


@pytest.mark.parametrize("version", VERSIONS)
async def test_both_ends_and_a_time_are_found(desk: Desk, version: int) -> None:
    latest, earliest, timed = await offsets(desk, -1, -2, 900, version=version)
    assert [one.error_code for one in (latest, earliest, timed)] == [ErrorCode.none] * 3
    assert (latest.partition_index, latest.offset, latest.timestamp) == (0, 10, -1)
    assert (earliest.partition_index, earliest.offset, earliest.timestamp) == (1, 2, -1)
    assert (timed.partition_index, timed.offset, timed.timestamp) == (2, 4, 1000)


@pytest.mark.parametrize("version", range(2, 12))
async def test_readers_of_committed_records_see_the_last_stable_offset(
    desk: Desk, version: int
) -> None:
    (latest,) = await offsets(desk, -1, version=version, isolation=1)
    assert latest.offset == 8


async def test_the_newest_record_is_found_by_its_time(desk: Desk) -> None:
    (newest,) = await offsets(desk, -3)
    assert (newest.offset, newest.timestamp) == (4, 1000)


async def test_the_ends_of_the_tiers_are_told(desk: Desk) -> None:
    local, tiered = await offsets(desk, -4, -5)
    assert (local.offset, local.error_code) == (3, ErrorCode.none)
    assert (tiered.offset, tiered.timestamp, tiered.error_code) == (-1, -1, ErrorCode.none)


@pytest.mark.parametrize(("kind", "first"), [(-3, 7), (-4, 8), (-5, 9), (-6, 12)])
async def test_a_kind_of_offset_is_unsupported_before_the_version_that_brought_it(
    desk: Desk, kind: int, first: int
) -> None:
    for version in (first - 1, first):
        if version in VERSIONS:
            (answer,) = await offsets(desk, kind, version=version)
            expected = ErrorCode.unsupported_version if version < first else ErrorCode.none
            assert answer.error_code is expected


@pytest.mark.parametrize("timestamp", [-3, 900])
async def test_a_time_after_the_last_record_has_no_offset(desk: Desk, timestamp: int) -> None:
    desk.offsets.at = None
    (answer,) = await offsets(desk, timestamp)
    assert (answer.error_code, answer.offset, answer.timestamp) == (ErrorCode.none, -1, -1)


@pytest.mark.parametrize("timestamp", [-1, -2, -3, -5, 900])
async def test_unknown_topics_and_partitions_are_unknown_however_asked(
    desk: Desk, timestamp: int
) -> None:
    (topic,) = await offsets(desk, timestamp, topic="nope")
    (partition,) = await offsets(desk, timestamp, partition=10)
    assert topic.error_code is ErrorCode.unknown_topic_or_partition
    assert partition.error_code is ErrorCode.unknown_topic_or_partition


async def test_a_look_up_that_fails_fails_its_partition_alone(desk: Desk) -> None:
    desk.offsets.time_failure = StoreUnavailableError("away")
    latest, timed = await offsets(desk, -1, 900)
    assert latest.error_code is ErrorCode.none
    assert timed.error_code is ErrorCode.kafka_storage_error


async def test_without_the_control_plane_every_partition_fails(desk: Desk) -> None:
    desk.control.failure = ControlUnavailableError("away")
    found = await offsets(desk, -1, 900)
    assert [one.error_code for one in found] == [ErrorCode.kafka_storage_error] * 2


async def test_one_partition_may_be_asked_for_several_times(desk: Desk) -> None:
    asked = [{"partition_index": 0, "timestamp": timestamp} for timestamp in (-1, -2)]
    response = await desk.ask(
        ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=[{"name": "orders", "partitions": asked}]
    )
    assert [one.offset for one in response.topics[0].partitions] == [10, 2]


@pytest.mark.parametrize("version", range(4, 12))
@pytest.mark.parametrize("timestamp", [-1, 900])
async def test_a_leader_epoch_that_is_not_the_partitions_own_is_told(
    desk: Desk, version: int, timestamp: int
) -> None:
    [topic] = await desk.control.topics.all()
    desk.control.by_id[topic.id] = replace(topic, leader_epochs={PartitionIndex(0): LeaderEpoch(4)})
    codes = [
        (await offsets(desk, timestamp, version=version, epoch=epoch))[0].error_code
        for epoch in (-1, 3, 4, 5)
    ]
    none = ErrorCode.none
    fenced, unknown = ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch
    assert codes == [none, fenced, none, unknown]
