"""Describing and changing configs.

The configs of topics and groups can be changed. Brokers find a change when they next look the topic
or the configs of groups up, which is within seconds. The configs of a broker are its settings, and
change with a restart.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from stratalog.admin.authorizer import Authorizer
from stratalog.admin.config_changes import AskedChange, Changes, incremental, replacing
from stratalog.admin.config_description import (
    DescribedConfig,
    ResourceType,
    describe_broker,
    describe_topic,
)
from stratalog.admin.dry_runs import DryRunAdmin
from stratalog.admin.entries import DONE, Done, each_once
from stratalog.admin.group_configs import GroupConfigAdmin
from stratalog.admin.principal import Principal
from stratalog.admin.rights import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_TOPIC_CONFIGS,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
)
from stratalog.cluster.membership import Membership
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import RETENTION_CONFIGS, Topic
from stratalog.errors import CallError, StratalogError
from stratalog.opening.cluster_settings import ClusterSettings
from stratalog.settings import Settings
from stratalog.topic.catalog import TopicCatalog

log = logging.getLogger(__name__)


_THROTTLES = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Limits on copying partitions between brokers, which never happens here. Kafka's tools set them
before a reassignment, and delete them on every broker when they verify one."""


class ConfigResource(NamedTuple):
    """A thing with configs, by the number of its type and its name. It need not exist."""

    type: int
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReplacement:
    """The configs that a resource shall have. Configs that are not named are unset."""

    resource: ConfigResource
    configs: Sequence[tuple[str, str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigUpdate:
    """Changes of a resource's configs. Configs that are not named stay as they are."""

    resource: ConfigResource
    changes: Sequence[AskedChange]


class ConfigAdmin:
    def __init__(
        self,
        *,
        catalog: TopicCatalog,
        membership: Membership,
        settings: Settings,
        shared_settings: ClusterSettings,
        dry_runs: DryRunAdmin,
        groups: GroupConfigAdmin,
        authorizer: Authorizer,
    ) -> None:
        self._catalog = catalog
        self._membership = membership
        self._settings = settings
        self._shared_settings = shared_settings
        self._dry_runs = dry_runs
        self._groups = groups
        self._authorizer = authorizer

    async def resources(
        self, principal: Principal, types: Iterable[ResourceType]
    ) -> list[ConfigResource]:
        """List the resources of these types that have configs."""
        self._authorizer.authorize_on_cluster(principal, DESCRIBE_CLUSTER_CONFIGS)
        wanted = frozenset(types)
        found: list[ConfigResource] = []
        if ResourceType.BROKER in wanted:
            live = self._membership.live()
            found += [ConfigResource(ResourceType.BROKER, str(each.broker_id)) for each in live]
        if ResourceType.TOPIC in wanted:
            topics = await self._catalog.all()
            found += [ConfigResource(ResourceType.TOPIC, topic.name) for topic in topics]
        if ResourceType.GROUP in wanted:
            names = await self._groups.names()
            found += [ConfigResource(ResourceType.GROUP, name) for name in names]
        return found

    async def describe(
        self, principal: Principal, resource: ConfigResource, names: Sequence[str] | None = None
    ) -> list[DescribedConfig]:
        """Describe the named configs of a resource, or without names all."""
        found = await self._describe(principal, resource)
        return [config for config in found if not names or config.name in names]

    async def replace(
        self,
        principal: Principal,
        wanted: Sequence[ConfigReplacement],
        *,
        validate_only: bool = False,
    ) -> dict[ConfigResource, Done | StratalogError]:
        async def replace(one: ConfigReplacement) -> Done:
            if one.resource.type == ResourceType.GROUP:
                return await self._groups.replace(
                    principal, one.resource.name, one.configs, validate_only=validate_only
                )
            return await self._alter(
                principal,
                one.resource,
                lambda topic: replacing(topic.configs, one.configs),
                validate_only=validate_only,
            )

        return await each_once(((one.resource, one) for one in wanted), replace, noun="resource")

    async def update(
        self, principal: Principal, wanted: Sequence[ConfigUpdate], *, validate_only: bool = False
    ) -> dict[ConfigResource, Done | StratalogError]:
        defaults = self._settings.topic

        async def update(one: ConfigUpdate) -> Done:
            if one.resource.type == ResourceType.GROUP:
                return await self._groups.update(
                    principal, one.resource.name, one.changes, validate_only=validate_only
                )
            if _is_throttle(one):
                self._authorizer.authorize_on_cluster(principal, ALTER_CLUSTER_CONFIGS)
                return DONE
            return await self._alter(
                principal,
                one.resource,
                lambda topic: incremental(defaults, topic.configs, one.changes),
                validate_only=validate_only,
            )

        return await each_once(((one.resource, one) for one in wanted), update, noun="resource")

    async def _describe(
        self, principal: Principal, resource: ConfigResource
    ) -> Sequence[DescribedConfig]:
        if resource.type == ResourceType.TOPIC:
            self._authorizer.authorize(principal, DESCRIBE_TOPIC_CONFIGS, resource.name)
            topic = await self._topic(resource.name)
            return describe_topic((await self._in_force()).topic, topic.configs)
        if resource.type == ResourceType.BROKER:
            self._authorizer.authorize_on_cluster(principal, DESCRIBE_CLUSTER_CONFIGS)
            return await self._broker_configs(resource.name)
        if resource.type == ResourceType.GROUP:
            return await self._groups.describe(principal, resource.name)
        raise _without_configs(resource)

    async def _in_force(self) -> Settings:
        """Return the settings of this broker with the cluster's present values."""
        return (await self._shared_settings.read()).settings

    async def _broker_configs(self, name: str) -> Sequence[DescribedConfig]:
        """An empty name stands for the cluster's dynamic defaults, of which there are none."""
        if not name:
            return []
        own = self._membership.broker_id
        if name != str(own):
            raise CallError(f"this is broker {own}: ask broker {name} for its configs")
        return describe_broker(await self._in_force(), own)

    async def _alter(
        self,
        principal: Principal,
        resource: ConfigResource,
        changes_of: Callable[[Topic], Changes],
        *,
        validate_only: bool,
    ) -> Done:
        topic = await self._alterable(principal, resource)
        changes = changes_of(topic)
        if not validate_only:
            await self._catalog.set_configs(topic, changes)
            _log_changes(principal, topic, changes)
            # The change is made, whatever becomes of the look at its consequences.
            with suppress(StratalogError):
                await self._warn_of_retention(principal, topic, changes)
        return DONE

    async def _warn_of_retention(
        self, principal: Principal, topic: Topic, changes: Changes
    ) -> None:
        if not changes.keys() & set(RETENTION_CONFIGS):
            return
        in_force = await self._in_force()
        would_go = await self._dry_runs.retention(
            principal, topic.name, changes, defaults=in_force.topic
        )
        if would_go.offsets:
            log.warning(
                "%s changed the retention of topic %r: %s%d bytes with %d offsets are beyond it."
                " They go when the limits before do not count any more, in %d ms.",
                principal.with_client,
                topic.name,
                "" if would_go.complete else "at least ",
                would_go.size_bytes,
                would_go.offsets,
                in_force.janitor.retention_window_ms,
            )

    async def _alterable(self, principal: Principal, resource: ConfigResource) -> Topic:
        if resource.type == ResourceType.BROKER:
            self._authorizer.authorize_on_cluster(principal, ALTER_CLUSTER_CONFIGS)
            raise CallError("the configs of a broker are its settings: change them and restart it")
        if resource.type != ResourceType.TOPIC:
            raise _without_configs(resource)
        self._authorizer.authorize(principal, ALTER_TOPIC_CONFIGS, resource.name)
        return await self._topic(resource.name)

    async def _topic(self, name: str) -> Topic:
        found = await self._catalog.refreshed([name])
        if name not in found:
            raise UnknownTopicError(f"there is no topic {name!r}")
        return found[name]


def _is_throttle(update: ConfigUpdate) -> bool:
    """Tell whether a request sets or deletes the throttles of a broker, and nothing else."""
    names = {change.name for change in update.changes}
    return update.resource.type == ResourceType.BROKER and bool(names) and names <= _THROTTLES


def _without_configs(resource: ConfigResource) -> CallError:
    return CallError(f"resources of type {resource.type} have no configs here")


def _log_changes(principal: Principal, topic: Topic, changes: Changes) -> None:
    for name, value in changes.items():
        log.info(
            "%s changed %s of topic %r from %s to %s.",
            principal.with_client,
            name,
            topic.name,
            topic.configs.get(name, "its default"),
            "its default" if value is None else value,
        )
