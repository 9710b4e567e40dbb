"""Configs of consumer groups. Their meaning is none of the control plane's business."""

from collections.abc import Mapping

from stratalog.control.groups.model import GROUP_CONFIG
from stratalog.control.ledger import Ledger
from stratalog.control.sql.database import Connection

_ALL = f"SELECT {GROUP_CONFIG.columns} FROM group_configs"
_SET = """
    INSERT INTO group_configs (group_id, name, value) VALUES ($1, $2, $3)
    ON CONFLICT (group_id, name) DO UPDATE SET value = $3
"""
_UNSET = "DELETE FROM group_configs WHERE group_id = $1 AND name = $2"


class GroupConfigOperations(Ledger):
    async def configs(self) -> dict[str, dict[str, str]]:
        """Return the configs of all groups that have any."""
        rows = await self._database.read(lambda connection: connection.fetch(_ALL))
        found: dict[str, dict[str, str]] = {}
        for config in GROUP_CONFIG.read_all(rows):
            found.setdefault(config.group_id, {})[config.name] = config.value
        return found

    async def change_configs(self, group_id: str, changes: Mapping[str, str | None]) -> None:
        """Set configs of a group, or unset those without a value."""

        async def work(connection: Connection) -> None:
            for name, value in sorted(changes.items()):
                if value is None:
                    await connection.execute(_UNSET, group_id, name)
                else:
                    await connection.execute(_SET, group_id, name, value)

        await self._database.write(work)
