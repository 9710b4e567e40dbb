"""The settings that all brokers of a cluster share: listed and changed."""

import logging

from stratalog.admin.authorizer import Authorizer
from stratalog.admin.errors import NotClusterWideError
from stratalog.admin.principal import Principal
from stratalog.admin.rights import ALTER_CLUSTER_CONFIGS, DESCRIBE_CLUSTER_CONFIGS
from stratalog.control.plane import ControlPlane
from stratalog.control.settings.model import ClusterSetting
from stratalog.opening.cluster_settings import settings_in_force
from stratalog.settings import CLUSTER_WIDE, Settings
from stratalog.settings_source import checked_text, value_text

log = logging.getLogger(__name__)


class ClusterSettingsAdmin:
    def __init__(self, *, control: ControlPlane, authorizer: Authorizer) -> None:
        self._control = control
        self._authorizer = authorizer

    async def all(self, principal: Principal) -> list[ClusterSetting]:
        """Return the values that the cluster has, by name."""
        self._authorizer.authorize_on_cluster(principal, DESCRIBE_CLUSTER_CONFIGS)
        found = (await self._control.settings.now()).settings
        return [found[name] for name in sorted(found)]

    async def in_force(self, own: Settings) -> Settings:
        """Return these settings with the cluster's values."""
        return settings_in_force(own, await self._control.settings.now()).settings

    async def set(self, principal: Principal, name: str, text: str) -> ClusterSetting:
        """Change a value for all brokers, which follow with the janitor's next run.

        `text` may have a unit, as in a settings file. Raises `SettingsError` if it is no value.
        """
        self._authorizer.authorize_on_cluster(principal, ALTER_CLUSTER_CONFIGS)
        _check_name(name)
        changed = await self._control.settings.change(
            name, checked_text(name, text), by=str(principal)
        )
        log.warning("%s set the cluster's %s to %s.", principal.with_client, name, changed.value)
        return changed

    async def unset(self, principal: Principal, name: str) -> ClusterSetting:
        """Give the cluster the default of this version."""
        _check_name(name)
        return await self.set(principal, name, value_text(Settings(), name))


def _check_name(name: str) -> None:
    if name not in CLUSTER_WIDE:
        raise NotClusterWideError(
            f"{name} is not shared by the cluster: it has {', '.join(CLUSTER_WIDE)}. Other settings"
            " stand in each broker's file"
        )
