from dataclasses import dataclass
from uuid import UUID

from stratalog.control.sql.table import Selection, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The identity of a cluster."""

    cluster_id: UUID
    generation: int
    """Grows with every broker start and every sweep. The object store's marker carries the
    newest value, so that a control plane restored from an old backup is noticed."""
    segments_apart: bool | None = None
    """True if the cluster's own segments lie in a store apart from its blocks. None: not noted,
    because no broker that could note it has started yet."""
    halted_reason: str | None = None
    """Not None after the control plane was found to have gone back. No program writes then."""
    halted_ms: int | None = None
    accepted_ms: int | None = None
    """When the control plane was accepted after it went back."""


CLUSTER_TABLE = Table(
    "cluster",
    one="smallint",
    cluster_id="uuid",
    generation="bigint",
    next_producer_id="bigint",
    segments_apart="boolean null",
    halted_reason="text null",
    halted_ms="bigint null",
    accepted_ms="bigint null",
)
CLUSTER = Selection(Cluster, CLUSTER_TABLE)

SECRETS = Table("secrets", name="text", secret="bytea")
