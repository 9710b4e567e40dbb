from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from stratalog.control.sql.table import Selection, Table

UNNAMED = "-"
"""Stands for the claim in a marker of a version that gave claims no ids."""
_KEPT_CLAIMS = 16
"""So many newest claims are known at least, for programs that read the marker before the list."""
_MOST_CLAIMS = 256
"""More than there are programs that claim a store at the same time."""


class StoreRole(Enum):
    """The role of a store in its cluster."""

    BLOCKS = "blocks"
    """The store of the blocks, and of segments that lie beside them."""
    SEGMENTS = "segments"
    """The store of segments that lie apart from the blocks."""

    @property
    def id_column(self) -> str:
        return "store_id" if self is StoreRole.BLOCKS else "segments_store_id"

    @property
    def claims_column(self) -> str:
        return "store_claims" if self is StoreRole.BLOCKS else "segments_store_claims"


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
    store_id: UUID | None = None
    store_claims: str | None = None
    segments_store_id: UUID | None = None
    segments_store_claims: str | None = None

    def id_of(self, role: StoreRole) -> UUID | None:
        """The id of the store in this role. None before its first claim by this version."""
        return self.store_id if role is StoreRole.BLOCKS else self.segments_store_id

    def claims_on(self, role: StoreRole) -> list[str]:
        """The newest claims on the store, newest last. One of them is in its marker."""
        blocks = role is StoreRole.BLOCKS
        return parse_claims(self.store_claims if blocks else self.segments_store_claims)


def parse_claims(text: str | None) -> list[str]:
    return [UNNAMED] if text is None else text.split()


def add_claim(known: Sequence[str], claim: str, found: str | None) -> list[str]:
    """Add a claim to the list. `found` is the one that the marker was just seen with, if any.

    Claims from before `found` may go: a put by one of them finds a changed marker and fails. Claims
    since then may yet come into the marker, or not, and must stay.
    """
    first = 0
    if found is not None:
        first = max(0, min(known.index(found), len(known) + 1 - _KEPT_CLAIMS))
    kept = [*known[first:], claim]
    # Only a store that takes no puts makes the list so long. The claim in its marker is the first.
    return [kept[0], *kept[-(_MOST_CLAIMS - 1) :]] if len(kept) > _MOST_CLAIMS else kept


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
    store_id="uuid null",
    store_claims="text null",
    segments_store_id="uuid null",
    segments_store_claims="text null",
)
CLUSTER = Selection(Cluster, CLUSTER_TABLE)

SECRETS = Table("secrets", name="text", secret="bytea")
