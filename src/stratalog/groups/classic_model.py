"""What a classic group is asked and what it answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from stratalog.errors import StratalogError

NO_GENERATION = -1


class ClassicState(StrEnum):
    EMPTY = "Empty"
    """Without members; offsets may be left."""
    PREPARING = "PreparingRebalance"
    """Members are joining."""
    COMPLETING = "CompletingRebalance"
    """All know the generation; the leader has yet to assign."""
    STABLE = "Stable"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    member_id: str
    """Empty for somebody new."""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Mapping[str, bytes]
    requires_known_id: bool = True
    """Whether somebody new is first given an id and has to join again with it (since JoinGroup
    4), so that a client that never hears the answer leaves no member behind."""
    can_skip_assignment: bool = True
    """Whether a leader can be told that nothing needs to be assigned (since JoinGroup 9)."""


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
    """All of them for the leader, none for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    member_id: str
    instance_id: str | None = None
    generation: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes]
    """By member, from the leader alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    error: StratalogError | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """One member in a LeaveGroup. Without a member id, whoever has the instance id."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicLimits:
    initial_rebalance_delay_ms: int
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    max_size: int
