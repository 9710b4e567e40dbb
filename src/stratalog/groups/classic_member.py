"""A member of a classic group, and how members agree on a protocol."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

NEW_MEMBER_TIMEOUT_S = 300.0
"""How long somebody who has never been answered may stay silent. It does not know its id yet, so
it sends no heartbeats, and its client may be gone and have joined again as somebody else."""


@dataclass(slots=True, kw_only=True)
class ClassicMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Mapping[str, bytes]
    """Metadata by the protocol's name, the most wanted protocol first."""
    assignment: bytes = b""
    deadline_s: float = inf
    """When the session ends, unless there is a sign of life."""
    is_new: bool = True
    """Whether it was never answered."""
    joining: int | None = None
    """The ticket of its JoinGroup, while that waits."""
    syncing: int | None = None
    """The ticket of its SyncGroup, while that waits."""

    def touch(self, now_s: float) -> None:
        self.deadline_s = now_s + self.session_timeout_ms / 1000

    @property
    def expires_s(self) -> float:
        """Who waits for an answer cannot send heartbeats, and is not held to them."""
        waits = self.joining is not None or self.syncing is not None
        return inf if waits and not self.is_new else self.deadline_s

    def metadata_of(self, protocol: str | None) -> bytes:
        return self.protocols.get(protocol or "", b"")

    def has_same_protocols(self, protocols: Mapping[str, bytes]) -> bool:
        return list(self.protocols.items()) == list(protocols.items())


def common_protocols(members: Iterable[ClassicMember]) -> set[str]:
    """Those that every member supports."""
    supported = [set(member.protocols) for member in members]
    return set.intersection(*supported) if supported else set()


def elected_protocol(members: Sequence[ClassicMember]) -> str:
    """Every member votes for the one of the common protocols that it prefers."""
    candidates = common_protocols(members)
    votes = Counter(
        next(name for name in member.protocols if name in candidates) for member in members
    )
    return max(votes, key=lambda name: (votes[name], name))
