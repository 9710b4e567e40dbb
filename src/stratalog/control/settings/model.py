"""Settings that the brokers of a cluster share, and their table."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stratalog.control.earlier_values import EarlierValue, read_earlier
from stratalog.control.sql.table import Selection, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSetting:
    name: str
    value: str
    """As a settings file has it, without a unit."""
    changed_ms: int
    changed_by: str
    earlier: Sequence[EarlierValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettingsNow:
    """All settings of the cluster, from one snapshot."""

    now_ms: int
    """The database's time of the snapshot."""
    settings: Mapping[str, ClusterSetting]


CLUSTER_SETTINGS = Table(
    "cluster_settings",
    name="text",
    value="text",
    changed_ms="bigint",
    changed_by="text",
    earlier="text",
)
CLUSTER_SETTING = Selection(
    ClusterSetting,
    CLUSTER_SETTINGS,
    earlier=CLUSTER_SETTINGS["earlier"].decoded(lambda text: read_earlier(json.loads(text))),
)
