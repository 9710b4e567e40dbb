from dataclasses import dataclass
from uuid import UUID

from stratalog.ids import (
    BrokerId,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    broker_id: BrokerId
    host: str
    port: int
    rack: str | None
    incarnation: UUID
    """New with every start, so that two processes with one id are told apart."""
    alive: bool
