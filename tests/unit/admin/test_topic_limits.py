"""Limits on the topics that clients create."""

import pytest
from tests.support.ledgers import FakeControlPlane

from stratalog.admin.errors import TopicLimitError
from stratalog.admin.topic_limits import TopicLimits, check_request
from stratalog.settings import BrokerSettings
from stratalog.testing.clock import ManualClock


class Partitions(FakeControlPlane):
    async def topics_partition_total(self) -> int:
        return 90


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def limits(clock: ManualClock) -> TopicLimits:
    settings = BrokerSettings(max_partitions=100, auto_create_limit=6)
    return TopicLimits(control=Partitions(), settings=settings, clock=clock)


async def test_the_partitions_of_the_cluster_have_a_limit(limits: TopicLimits) -> None:
    await limits.check_partitions(10)
    with pytest.raises(TopicLimitError, match=r"90 partitions and may have 100"):
        await limits.check_partitions(11)


async def test_topics_that_clients_ask_for_are_made_at_a_limited_rate(
    limits: TopicLimits, clock: ManualClock
) -> None:
    for number in range(6):
        limits.take_first_use(f"random-{number}")
    with pytest.raises(TopicLimitError, match=r"broker\.auto_create_limit"):
        limits.take_first_use("random-6")
    await clock.advance(601)
    limits.take_first_use("random-7")
    with pytest.raises(TopicLimitError):
        limits.take_first_use("random-8")


def test_one_request_creates_as_many_partitions_as_in_kafka() -> None:
    check_request(10_000)
    with pytest.raises(TopicLimitError, match="send several"):
        check_request(10_001)
