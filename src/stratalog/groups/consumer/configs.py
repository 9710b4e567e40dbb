"""Configs that one consumer group has instead of the broker's settings, by Kafka's names."""

from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from typing import TypeAlias

from stratalog.clock import Clock
from stratalog.errors import StratalogError
from stratalog.groups.errors import GroupConfigError
from stratalog.settings import GroupsSettings

SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"

Configs: TypeAlias = Mapping[str, str]

_FRESH_S = 2.0
"""Changes through another broker are noticed after so long."""


def defaults_of(settings: GroupsSettings) -> dict[str, str]:
    return {
        SESSION: str(settings.consumer_session_timeout_ms),
        HEARTBEAT: str(settings.consumer_heartbeat_interval_ms),
    }


def check_group_configs(configs: Configs, settings: GroupsSettings) -> None:
    """Raise `GroupConfigError` unless a group may have these configs."""
    defaults = defaults_of(settings)
    for name, value in configs.items():
        if name not in defaults:
            near = get_close_matches(name, defaults, n=1)
            hint = f": did you mean {near[0]}?" if near else ""
            raise GroupConfigError(f"unknown group config {name}{hint}")
        if not (value.isascii() and value.isdecimal()):
            raise GroupConfigError(f"invalid value {value!r} for {name}: it must be a whole number")
    values = {name: int(value) for name, value in {**defaults, **configs}.items()}
    least, most = settings.min_session_timeout_ms, settings.max_session_timeout_ms
    if SESSION in configs and not least <= values[SESSION] <= most:
        raise GroupConfigError(f"invalid value for {SESSION}: it must be from {least} to {most}")
    if not 1 <= values[HEARTBEAT] < values[SESSION]:
        raise GroupConfigError(
            f"{HEARTBEAT} must be from 1 to less than {SESSION}, which is {values[SESSION]}"
        )


class GroupConfigs:
    """The configs of all groups as last read. Few groups have any, so one read finds all."""

    def __init__(
        self,
        read: Callable[[], Awaitable[Mapping[str, Configs]]],
        settings: GroupsSettings,
        *,
        clock: Clock,
    ) -> None:
        self._read = read
        self._defaults = defaults_of(settings)
        self._clock = clock
        self._configs: Mapping[str, Configs] = {}
        self._fresh_until_s = clock.monotonic()

    async def refresh(self) -> None:
        """Read the configs again if they are not fresh. Without a control plane they stay."""
        now_s = self._clock.monotonic()
        if now_s < self._fresh_until_s:
            return
        # Set before the read, so that other heartbeats do not read, too.
        self._fresh_until_s = now_s + _FRESH_S
        try:
            self._configs = await self._read()
        except StratalogError:
            return

    def session_ms(self, group_id: str) -> int:
        return self._value(group_id, SESSION)

    def heartbeat_ms(self, group_id: str) -> int:
        return self._value(group_id, HEARTBEAT)

    def _value(self, group_id: str, name: str) -> int:
        return int(self._configs.get(group_id, self._defaults).get(name, self._defaults[name]))
