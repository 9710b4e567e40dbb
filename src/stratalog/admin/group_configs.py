"""Configs of consumer groups: described and changed. A group need not exist to have some."""

import logging
from collections.abc import Mapping, Sequence

from stratalog.admin.authorizer import Authorizer
from stratalog.admin.config_changes import AskedChange, Changes, ConfigOperation
from stratalog.admin.config_description import Candidate, ConfigSource, DescribedConfig
from stratalog.admin.entries import DONE, Done
from stratalog.admin.group_names import check_group_id
from stratalog.admin.principal import Principal
from stratalog.admin.rights import ALTER_GROUP_CONFIGS, DESCRIBE_GROUP_CONFIGS
from stratalog.control.plane import ControlPlane
from stratalog.errors import CallError
from stratalog.groups.consumer.configs import (
    HEARTBEAT,
    SESSION,
    check_group_configs,
    defaults_of,
)
from stratalog.groups.errors import GroupConfigError
from stratalog.settings import GroupsSettings
from stratalog.topic_configs import ConfigType

log = logging.getLogger(__name__)

_DOCUMENTATION = {
    SESSION: "How long a silent member of the group keeps its partitions.",
    HEARTBEAT: "The interval of the heartbeats that members of the group are asked for.",
}


class GroupConfigAdmin:
    def __init__(
        self, *, control: ControlPlane, settings: GroupsSettings, authorizer: Authorizer
    ) -> None:
        self._control = control
        self._settings = settings
        self._authorizer = authorizer

    async def names(self) -> list[str]:
        """Return the groups that have configs of their own."""
        return sorted(await self._control.groups.configs())

    async def describe(self, principal: Principal, group_id: str) -> list[DescribedConfig]:
        check_group_id(group_id)
        self._authorizer.authorize(principal, DESCRIBE_GROUP_CONFIGS, group_id)
        own = await self._own(group_id)
        return [self._described(name, own) for name in _DOCUMENTATION]

    async def replace(
        self,
        principal: Principal,
        group_id: str,
        configs: Sequence[tuple[str, str | None]],
        *,
        validate_only: bool,
    ) -> Done:
        """Give the group these configs alone."""
        own = await self._alterable(principal, group_id)
        changes: Changes = {**dict.fromkeys(own, None), **_named_once(configs)}
        if any(value is None for _, value in configs):
            raise GroupConfigError("a config has no value; to unset it, leave it out")
        return await self._change(principal, group_id, own, changes, validate_only=validate_only)

    async def update(
        self,
        principal: Principal,
        group_id: str,
        asked: Sequence[AskedChange],
        *,
        validate_only: bool,
    ) -> Done:
        """Change these configs, and leave the others."""
        own = await self._alterable(principal, group_id)
        changes = _named_once([(change.name, _value(change)) for change in asked])
        return await self._change(principal, group_id, own, changes, validate_only=validate_only)

    async def _alterable(self, principal: Principal, group_id: str) -> Mapping[str, str]:
        check_group_id(group_id)
        self._authorizer.authorize(principal, ALTER_GROUP_CONFIGS, group_id)
        return await self._own(group_id)

    async def _change(
        self,
        principal: Principal,
        group_id: str,
        own: Mapping[str, str],
        changes: Changes,
        *,
        validate_only: bool,
    ) -> Done:
        wanted = {name: value for name, value in {**own, **changes}.items() if value is not None}
        check_group_configs(wanted, self._settings)
        if validate_only:
            return DONE
        await self._control.groups.change_configs(group_id, changes)
        for name, value in changes.items():
            log.info(
                "%s changed %s of group %r from %s to %s.",
                principal.with_client,
                name,
                group_id,
                own.get(name, "its default"),
                "its default" if value is None else value,
            )
        return DONE

    async def _own(self, group_id: str) -> Mapping[str, str]:
        return (await self._control.groups.configs()).get(group_id, {})

    def _described(self, name: str, own: Mapping[str, str]) -> DescribedConfig:
        kafkas = defaults_of(GroupsSettings())[name]
        brokers = defaults_of(self._settings)[name]
        candidates = [Candidate(ConfigSource.DEFAULT, name, kafkas)]
        if brokers != kafkas:
            candidates.insert(0, Candidate(ConfigSource.STATIC_BROKER, f"group.{name}", brokers))
        if name in own:
            candidates.insert(0, Candidate(ConfigSource.GROUP, name, own[name]))
        return DescribedConfig(
            name=name,
            type=ConfigType.INT,
            documentation=_DOCUMENTATION[name],
            read_only=False,
            candidates=candidates,
        )


def _value(change: AskedChange) -> str | None:
    if change.operation == ConfigOperation.DELETE:
        return None
    if change.operation != ConfigOperation.SET:
        raise GroupConfigError(f"{change.name} is not a list: set it or delete it")
    if change.value is None:
        raise GroupConfigError(f"config {change.name} has no value; to unset it, delete it")
    return change.value


def _named_once(configs: Sequence[tuple[str, str | None]]) -> Changes:
    changes = dict(configs)
    if len(changes) < len(configs):
        raise CallError("the request names a config of a group twice")
    return changes
