"""A member of a classic group, and how members agree on a protocol."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from stratalog.groups.limits import MEMBER_BYTES

NEW_MEMBER_TIMEOUT_S = 300.0
"""The session of a member that waits for its first answer. Such a member does not know its id yet
and sends no heartbeats. Its client may be gone, or may have joined again as another member."""


@dataclass(slots=True, kw_only=True)
class ClassicMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Mapping[str, bytes]
    """Metadata by the name of the protocol, the preferred protocol first."""
    assignment: bytes = b""
    deadline_s: float = inf
    """The end of the session, unless there is a sign of life before."""
    is_new: bool = True
    """True until the member gets its first answer."""
    joining: int | None = None
    """The ticket of its JoinGroup, while that waits."""
    syncing: int | None = None
    """The ticket of its SyncGroup, while that waits."""
    counted_bytes: int = 0
    """The memory of the member, as its group counted it last."""

    @property
    def size_bytes(self) -> int:
        texts = len(self.member_id) + len(self.client_id) + len(self.instance_id or "")
        return MEMBER_BYTES + texts + protocols_bytes(self.protocols) + len(self.assignment)

    def touch(self, now_s: float) -> None:
        self.deadline_s = now_s + self.session_timeout_ms / 1000

    @property
    def expires_s(self) -> float:
        """The time at which the member is removed. A member that waits for an answer cannot send
        heartbeats, and is not removed for it."""
        waits = self.joining is not None or self.syncing is not None
        return inf if waits and not self.is_new else self.deadline_s

    def metadata_of(self, protocol: str | None) -> bytes:
        return self.protocols.get(protocol or "", b"")

    def has_same_protocols(self, protocols: Mapping[str, bytes]) -> bool:
        return list(self.protocols.items()) == list(protocols.items())


def protocols_bytes(protocols: Mapping[str, bytes]) -> int:
    return sum(len(name) + len(data) for name, data in protocols.items())


def common_protocols(members: Iterable[ClassicMember]) -> set[str]:
    """Return the protocols that every member supports."""
    supported = [set(member.protocols) for member in members]
    return set.intersection(*supported) if supported else set()


def elected_protocol(members: Sequence[ClassicMember]) -> str:
    """Return the protocol with most votes. A member votes for its preferred common protocol."""
    candidates = common_protocols(members)
    votes = Counter(
        next(name for name in member.protocols if name in candidates) for member in members
    )
    return max(votes, key=lambda name: (votes[name], name))
