"""Limits on the topics that clients create."""

from stratalog.admin.errors import TopicLimitError
from stratalog.allowance import HourlyAllowance
from stratalog.clock import Clock
from stratalog.control.plane import ControlPlane
from stratalog.settings import BrokerSettings

MOST_PARTITIONS_PER_REQUEST = 10_000
"""As in Kafka."""


class TopicLimits:
    def __init__(self, *, control: ControlPlane, settings: BrokerSettings, clock: Clock) -> None:
        self._control = control
        self._max_partitions = settings.max_partitions
        self._per_hour = settings.auto_create_limit
        self._first_uses = HourlyAllowance(self._per_hour, clock)

    async def check_partitions(self, added: int) -> None:
        """Raise if the cluster has no room for so many more partitions. Requests that come in the
        same moment may exceed the limit together."""
        present = await self._control.topics.partition_total()
        if present + added > self._max_partitions:
            raise TopicLimitError(
                f"the cluster has {present} partitions and may have {self._max_partitions}"
                f" (broker.max_partitions): there is no room for {added} more"
            )

    def take_first_use(self, name: str) -> None:
        """Count a topic that is created because a client asked for it."""
        if not self._first_uses.take():
            raise TopicLimitError(
                f"topic {name!r} is not created: clients have asked this broker for more than"
                f" {self._per_hour} new topics in an hour (broker.auto_create_limit)"
            )


def check_request(partition_count: int) -> None:
    if partition_count > MOST_PARTITIONS_PER_REQUEST:
        raise TopicLimitError(
            f"one request creates {MOST_PARTITIONS_PER_REQUEST} partitions at the most:"
            " send several"
        )
