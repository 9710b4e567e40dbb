"""Deleted topics that are still kept: listing them, bringing them back, giving them up early."""

import logging
from collections.abc import Sequence

from stratalog.admin.authorizer import Authorizer
from stratalog.admin.errors import DeletedTopicChoiceError
from stratalog.admin.principal import Principal
from stratalog.admin.rights import CREATE_TOPIC, DELETE_TOPIC, DESCRIBE_TOPIC
from stratalog.admin.topic_names import check_no_collision, check_topic_name
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import DeletedTopic
from stratalog.ids import kafka_base64
from stratalog.recovery.deletion_notes import DeletionNotes

log = logging.getLogger(__name__)


class DeletedTopicAdmin:
    def __init__(
        self,
        *,
        control: ControlPlane,
        authorizer: Authorizer,
        notes: DeletionNotes | None = None,
    ) -> None:
        self._control = control
        self._authorizer = authorizer
        self._notes = notes

    async def all(self, principal: Principal) -> list[DeletedTopic]:
        """Return the deleted topics that the principal may see, the oldest deletion first."""
        return [
            topic
            for topic in await self._control.topics.deleted()
            if self._authorizer.allows(principal, DESCRIBE_TOPIC, topic.name)
        ]

    async def find(
        self, principal: Principal, name: str, topic_id: str | None = None
    ) -> DeletedTopic:
        """Return the deleted topic of this name, and of this id if several had the name."""
        found = [
            topic
            for topic in await self.all(principal)
            if topic.name == name and topic_id in (None, kafka_base64(topic.id))
        ]
        if not found:
            raise UnknownTopicError(
                f'no deleted topic "{name}" is kept: `stratalog topic list --deleted` shows all'
            )
        if len(found) > 1:
            ids = ", ".join(kafka_base64(topic.id) for topic in found)
            raise DeletedTopicChoiceError(
                f'{len(found)} deleted topics had the name "{name}": choose with --id one of {ids},'
                " the oldest deletion first"
            )
        return found[0]

    async def undelete(
        self, principal: Principal, deleted: DeletedTopic, *, name: str | None = None
    ) -> None:
        """Bring a deleted topic back, under another name if one is given.

        Raises `TopicExistsError` if the name is taken, and `UnknownTopicError` if the removal of
        the topic has begun.
        """
        wanted = name or deleted.name
        self._authorizer.authorize(principal, DELETE_TOPIC, deleted.name)
        self._authorizer.authorize(principal, CREATE_TOPIC, wanted)
        check_topic_name(wanted)
        existing = [topic.name for topic in await self._control.topics.all()]
        check_no_collision(wanted, existing)
        await self._control.topics.undelete(deleted.id, wanted)
        if self._notes is not None:
            await self._notes.topic_undeleted(deleted.id)
        log.warning(
            "%s undeleted topic %r with the id %s as %r.",
            principal.with_client,
            deleted.name,
            kafka_base64(deleted.id),
            wanted,
        )

    async def purge(self, principal: Principal, deleted: Sequence[DeletedTopic]) -> None:
        """Have the next janitor remove these topics for good."""
        for topic in deleted:
            self._authorizer.authorize(principal, DELETE_TOPIC, topic.name)
        for topic in deleted:
            await self._control.topics.order_purge(topic.id)
            log.warning(
                "%s gave up deleted topic %r with the id %s: it cannot be undeleted any more.",
                principal.with_client,
                topic.name,
                kafka_base64(topic.id),
            )
