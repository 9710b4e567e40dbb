"""The ledger of the settings that all brokers of a cluster share.

The first broker writes its values. Later brokers leave them as they are, whatever their own files
say: only `change` replaces a value, and the old one goes into the value's history.
"""

import json
from collections.abc import Mapping
from functools import partial

from stratalog.control.earlier_values import with_earlier
from stratalog.control.ledger import Ledger
from stratalog.control.settings.model import (
    CLUSTER_SETTING,
    CLUSTER_SETTINGS,
    ClusterSetting,
    ClusterSettingsNow,
)
from stratalog.control.sql.database import Connection, Rows

_SELECT = f"SELECT {CLUSTER_SETTING.columns} FROM cluster_settings"
_FIRST = CLUSTER_SETTINGS.shape("name", "value")
_INSERT = CLUSTER_SETTINGS.insert(_FIRST, changed_ms="{now_ms}", changed_by="$1", earlier="'[]'")
_CHANGE = """
    UPDATE cluster_settings SET value = $2, changed_ms = $3, changed_by = $4, earlier = $5
    WHERE name = $1
"""


class ClusterSettingsLedger(Ledger):
    async def now(self) -> ClusterSettingsNow:
        return await self._database.read(_read)

    async def found(self, values: Mapping[str, str], *, by: str) -> ClusterSettingsNow:
        """Give the cluster the values of settings that it has not got yet; return all."""
        present = await self.now()
        missing = {name: values[name] for name in values if name not in present.settings}
        if not missing:
            return present
        await self._database.write(partial(_insert, values=missing, by=by))
        return await self.now()

    async def change(self, name: str, value: str, *, by: str) -> ClusterSetting:
        """Give the cluster another value. The one before is noted with the time of the change."""
        return await self._database.write(partial(_change, name=name, value=value, by=by))


async def _read(connection: Connection) -> ClusterSettingsNow:
    [(now_ms,)] = await connection.fetch("SELECT {now_ms}")
    found = CLUSTER_SETTING.read_all(await connection.fetch(_SELECT))
    return ClusterSettingsNow(now_ms=now_ms, settings={each.name: each for each in found})


async def _insert(connection: Connection, values: Mapping[str, str], by: str) -> None:
    # Of several first brokers one wins, setting by setting.
    await connection.execute(
        f"{_INSERT} ON CONFLICT (name) DO NOTHING",
        by,
        rows=Rows(_FIRST, sorted(values.items())),
    )


async def _change(connection: Connection, name: str, value: str, by: str) -> ClusterSetting:
    await _insert(connection, {name: value}, by)
    [row] = await connection.fetch(f"{_SELECT} WHERE name = $1 {{for_update}}", name)
    setting = CLUSTER_SETTING.read(row)
    if setting.value == value:
        return setting
    [(now_ms,)] = await connection.fetch("SELECT {now_ms}")
    earlier = with_earlier(setting.earlier, setting.value, now_ms=now_ms, name=name)
    await connection.execute(_CHANGE, name, value, now_ms, by, json.dumps(earlier))
    return ClusterSetting(name=name, value=value, changed_ms=now_ms, changed_by=by, earlier=earlier)
