"""The requests to a classic group, and its answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from stratalog.errors import StratalogError

NO_GENERATION = -1


class ClassicState(StrEnum):
    EMPTY = "Empty"
    """The group has no members. It may have committed offsets."""
    PREPARING = "PreparingRebalance"
    """Members are joining."""
    COMPLETING = "CompletingRebalance"
    """All members know the generation; the leader has yet to assign."""
    STABLE = "Stable"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    member_id: str
    """Empty for a new member."""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Mapping[str, bytes]
    requires_known_id: bool = True
    """True if a new member first gets an id and has to join again with it (since JoinGroup 4), so
    that a client that never gets the answer leaves no member behind."""
    can_skip_assignment: bool = True
    """True if the client understands an answer by which its member leads and need not assign (since
    JoinGroup 9)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    error: StratalogError | None = None
    member_id: str = ""
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()
    """All members of the group in the leader's answer, none in the other answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    member_id: str
    instance_id: str | None = None
    generation: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes]
    """Assignments by member id. Only the leader sends them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    error: StratalogError | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """One member in a LeaveGroup. Without a member id, the member that has the instance id."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicLimits:
    initial_rebalance_delay_ms: int
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    max_size: int
