"""Deleting records."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stratalog.admin.authorizer import Authorizer
from stratalog.admin.entries import PartitionName, outcome_of, topic_names
from stratalog.admin.principal import Principal
from stratalog.admin.rights import DELETE_TOPIC
from stratalog.control.log.model import RecordsDeleted
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.errors import StratalogError
from stratalog.ids import Offset, PartitionIndex, TopicPartition
from stratalog.recovery.deletion_notes import DeletionNotes
from stratalog.topic.catalog import TopicCatalog

HIGH_WATERMARK = Offset(-1)
"""Stands for the end of a partition: all its records are deleted."""


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDeletion:
    partition: PartitionName
    before: Offset
    """The first offset that remains, or `HIGH_WATERMARK`."""


class RecordAdmin:
    def __init__(
        self,
        *,
        control: ControlPlane,
        catalog: TopicCatalog,
        authorizer: Authorizer,
        notes: DeletionNotes | None = None,
    ) -> None:
        self._control = control
        self._catalog = catalog
        self._authorizer = authorizer
        self._notes = notes

    async def delete(
        self, principal: Principal, wanted: Sequence[RecordDeletion]
    ) -> list[Offset | StratalogError]:
        """Delete the oldest records of partitions and return where each begins afterwards.

        The outcomes come in the order of `wanted`.
        """
        topics = await self._catalog.named(topic_names([one.partition for one in wanted]))
        outcomes = [await outcome_of(self._delete(principal, topics, one)) for one in wanted]
        if self._notes is not None:
            deleted = [one for one in outcomes if isinstance(one, RecordsDeleted)]
            await self._notes.records_deleted(
                {TopicPartition(one.topic_id, one.partition): one.log_start for one in deleted}
            )
        return [one.log_start if isinstance(one, RecordsDeleted) else one for one in outcomes]

    async def _delete(
        self, principal: Principal, topics: Mapping[str, Topic], wanted: RecordDeletion
    ) -> RecordsDeleted:
        name, index = wanted.partition
        self._authorizer.authorize(principal, DELETE_TOPIC, name)
        topic = topics.get(name)
        if topic is None:
            raise UnknownTopicError(f"there is no topic {name!r}")
        # The catalog may know fewer partitions than there are, so the control plane decides.
        key = TopicPartition(topic.id, PartitionIndex(index))
        try:
            (deleted,) = await self._control.log.delete_records({key: wanted.before})
        except UnknownTopicError:
            self._catalog.forget(topic.id)
            raise
        log.warning(
            "%s deleted the records of %s before offset %d.",
            principal.with_client,
            wanted.partition,
            deleted.log_start,
        )
        return deleted
