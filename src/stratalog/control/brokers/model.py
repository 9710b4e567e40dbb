from dataclasses import dataclass
from uuid import UUID

from stratalog.control.sql.table import Expression, Selection, Table
from stratalog.ids import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    broker_id: BrokerId
    host: str
    port: int
    rack: str | None
    incarnation: UUID
    """New with every start. It distinguishes two processes with the same id."""
    alive: bool
    socket_name: str | None = None
    """See `cluster/socket_name.py`."""


BROKERS = Table(
    "brokers",
    broker_id="integer",
    host="text",
    port="integer",
    rack="text null",
    incarnation="uuid",
    expires_ms="bigint",
    socket_name="text null",
)
BROKER_INFO = Selection(
    BrokerInfo, BROKERS, alive=Expression("brokers.expires_ms > {now_ms}", "boolean")
)
