"""Settings that a broker shares with its cluster. The cluster's values win where records go.

Any broker deletes for the whole cluster, so a mistake in the file of one would cost the records of
all. The control plane has the values. A process that was given another one goes by
the cluster's wherever something is deleted, and its janitor leaves out the steps that go by it, so
that the difference is noticed. Where nothing is deleted, its own value is in force.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stratalog.control.earlier_values import EarlierValue
from stratalog.control.plane import ControlPlane
from stratalog.control.settings.model import ClusterSettingsNow
from stratalog.settings import CLUSTER_WIDE, Settings
from stratalog.settings_source import is_given, value_text, with_value

log = logging.getLogger(__name__)

_HARMLESS = ("block.window_ms", "tiering.age_ms")
"""Settings by which nothing is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsInForce:
    """The settings of a process, with the values that it shares with the cluster."""

    settings: Settings
    now_ms: int
    """The database's time at which they were read."""
    complete: bool
    """False if no broker of this version has given the cluster its values yet."""
    differing: frozenset[str]
    """The settings that this process was given and that differ from the cluster's."""
    earlier_defaults: Mapping[str, Sequence[EarlierValue]]
    """The values that the cluster's defaults of topic configs had before, by config."""


class ClusterSettings:
    def __init__(self, control: ControlPlane, own: Settings) -> None:
        self._control = control
        self._own = own

    async def found(self, by: str) -> SettingsInForce:
        """Give the cluster the values that it has not got yet, and warn of differences."""
        values = {name: value_text(self._own, name) for name in CLUSTER_WIDE}
        now = await self._control.settings.found(values, by=by)
        in_force = settings_in_force(self._own, now)
        for name in sorted(in_force.differing):
            log.warning(
                "Setting %s is %s here and %s in the cluster%s. Remove it here, or change it for"
                " all brokers: stratalog cluster config set %s %s",
                name,
                value_text(self._own, name),
                now.settings[name].value,
                "" if name in _HARMLESS else ": the janitor of this process deletes nothing by it",
                name,
                value_text(self._own, name),
            )
        return in_force

    async def read(self) -> SettingsInForce:
        return settings_in_force(self._own, await self._control.settings.now())


def settings_in_force(own: Settings, now: ClusterSettingsNow) -> SettingsInForce:
    settings = own
    differing = set()
    for name in CLUSTER_WIDE:
        if name not in now.settings or now.settings[name].value == value_text(own, name):
            continue
        if is_given(own, name):
            differing.add(name)
            if name in _HARMLESS:
                continue
        settings = with_value(settings, name, now.settings[name].value)
    return SettingsInForce(
        settings=settings,
        now_ms=now.now_ms,
        complete=now.settings.keys() >= set(CLUSTER_WIDE),
        differing=frozenset(differing),
        earlier_defaults={
            name.removeprefix("topic."): setting.earlier
            for name, setting in now.settings.items()
            if name.startswith("topic.")
        },
    )
