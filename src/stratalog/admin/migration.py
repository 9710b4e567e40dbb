"""Opening adopted topics for writes."""

from enum import Enum, auto

from stratalog.admin.authorizer import Authorizer
from stratalog.admin.principal import Principal
from stratalog.admin.rights import ALTER_TOPIC
from stratalog.admin.topics import TopicAdmin
from stratalog.control.log.model import WriteTier
from stratalog.control.plane import ControlPlane
from stratalog.topic.adopt import open_for_writes


class MigrationOutcome(Enum):
    OPENED = auto()
    ALREADY_OPEN = auto()
    """The topic wrote to blocks before, so nothing was changed."""


class MigrationAdmin:
    def __init__(
        self, *, control: ControlPlane, topics: TopicAdmin, authorizer: Authorizer
    ) -> None:
        self._control = control
        self._topics = topics
        self._authorizer = authorizer

    async def open_for_writes(self, principal: Principal, name: str) -> MigrationOutcome:
        """Let the topic's new records go into blocks. May be repeated after a failure."""
        self._authorizer.authorize(principal, ALTER_TOPIC, name)
        topic = await self._topics.find(principal, name)
        states = await self._control.log.topic_partitions(topic.id)
        if all(state.write_tier is WriteTier.BLOCK for state in states):
            return MigrationOutcome.ALREADY_OPEN
        await open_for_writes(self._control, topic.id)
        return MigrationOutcome.OPENED

    async def abort(self, principal: Principal, name: str) -> None:
        """Take back a migration that has begun. One that is finished stays."""
        self._authorizer.authorize(principal, ALTER_TOPIC, name)
        topic = await self._topics.find(principal, name)
        await self._control.topics.abort_migration(topic.id)
