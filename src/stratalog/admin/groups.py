"""Listing, describing and deleting consumer groups and their offsets."""

import logging
from collections.abc import Collection, Iterable, Sequence
from functools import partial

from stratalog.admin.authorizer import CLUSTER, Authorizer
from stratalog.admin.entries import (
    DONE,
    Done,
    PartitionName,
    attempt,
    outcome_of,
    partition_in,
    topic_names,
)
from stratalog.admin.group_names import check_group_id
from stratalog.admin.principal import Principal
from stratalog.admin.rights import DELETE_GROUP, DESCRIBE_CLUSTER, DESCRIBE_GROUP, READ_TOPIC
from stratalog.control.groups.model import GroupKind, GroupSummary
from stratalog.errors import StratalogError
from stratalog.groups.consumer.groups import ConsumerGroups
from stratalog.groups.consumer.model import GroupState
from stratalog.groups.coordinator import GroupCoordinator
from stratalog.groups.errors import GroupNotFoundError, SubscribedError
from stratalog.groups.group import GroupDescription
from stratalog.ids import TopicPartition
from stratalog.topic.catalog import TopicCatalog

log = logging.getLogger(__name__)


class GroupAdmin:
    """The groups that this broker coordinates."""

    def __init__(
        self,
        *,
        coordinator: GroupCoordinator,
        consumer_groups: ConsumerGroups,
        catalog: TopicCatalog,
        authorizer: Authorizer,
    ) -> None:
        self._coordinator = coordinator
        self._consumer_groups = consumer_groups
        self._catalog = catalog
        self._authorizer = authorizer

    async def list_groups(
        self, principal: Principal, *, states: Collection[str] = (), kinds: Collection[str] = ()
    ) -> list[GroupSummary]:
        """List groups in one of the states and of one of the kinds, in any case of letters.

        No states, or no kinds, means all of them.
        """
        wanted_states = {name.lower() for name in states}
        wanted_kinds = {name.lower() for name in kinds}
        return [
            summary
            for summary in self._visible(principal, await self._coordinator.listed())
            if (not wanted_states or summary.state_name.lower() in wanted_states)
            and (not wanted_kinds or summary.kind.value in wanted_kinds)
        ]

    async def describe_classic(self, principal: Principal, group_id: str) -> GroupDescription:
        """Raises `GroupNotFoundError` also for a group of another kind."""
        check_group_id(group_id, may_be_empty=True)
        self._authorizer.authorize(principal, DESCRIBE_GROUP, group_id)
        description = await self._coordinator.describe(group_id)
        if description.kind is not GroupKind.CLASSIC:
            raise GroupNotFoundError(f"group {group_id!r} is not a classic group")
        return description

    async def describe_consumer(self, principal: Principal, group_id: str) -> GroupState:
        check_group_id(group_id)
        self._authorizer.authorize(principal, DESCRIBE_GROUP, group_id)
        return await self._consumer_groups.describe(group_id)

    async def delete(
        self, principal: Principal, group_ids: Iterable[str]
    ) -> dict[str, Done | StratalogError]:
        """Delete groups without members, with their offsets, and return the outcomes by group."""

        async def delete_one(group_id: str) -> Done:
            check_group_id(group_id, may_be_empty=True)
            self._authorizer.authorize(principal, DELETE_GROUP, group_id)
            await self._coordinator.delete(group_id)
            log.warning("%s deleted group %r with its offsets.", principal.with_client, group_id)
            return DONE

        return {group_id: await outcome_of(delete_one(group_id)) for group_id in group_ids}

    async def delete_offsets(
        self, principal: Principal, group_id: str, wanted: Sequence[PartitionName]
    ) -> list[Done | StratalogError]:
        """Delete a group's offsets in topics that none of its members reads.

        The outcomes come in the order of `wanted`.
        """
        check_group_id(group_id, may_be_empty=True)
        self._authorizer.authorize(principal, DELETE_GROUP, group_id)
        is_deletable = await self._coordinator.deletable_offsets(group_id)
        topics = await self._catalog.refreshed(topic_names(wanted))

        def find(name: PartitionName) -> TopicPartition:
            self._authorizer.authorize(principal, READ_TOPIC, name.topic)
            key = partition_in(topics, name)
            if not is_deletable(name.topic):
                raise SubscribedError(f"members of group {group_id!r} read topic {name.topic!r}")
            return key

        keys = [attempt(partial(find, name)) for name in wanted]
        deleted = [key for key in keys if not isinstance(key, StratalogError)]
        if deleted:
            log.warning(
                "%s deletes offsets of group %r in %d partitions.",
                principal.with_client,
                group_id,
                len(deleted),
            )
            await self._coordinator.delete_offsets(group_id, deleted)
        return [key if isinstance(key, StratalogError) else DONE for key in keys]

    def _visible(
        self, principal: Principal, summaries: Sequence[GroupSummary]
    ) -> Sequence[GroupSummary]:
        """The right to describe the cluster stands for the right to describe any group."""
        if self._authorizer.allows(principal, DESCRIBE_CLUSTER, CLUSTER):
            return summaries
        return [
            summary
            for summary in summaries
            if self._authorizer.allows(principal, DESCRIBE_GROUP, summary.group_id)
        ]
