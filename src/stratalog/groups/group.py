"""The interface of a group to its coordinator, the same for both kinds.

A group is a state machine without I/O: its methods are called with the time, change it at once and
never wait. The coordinator compares `revision` to see whether the group must be saved. Answers to
requests that had to wait come out of `take_answers`, and go to the clients after the save.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from stratalog.control.groups.model import GroupKind

EMPTY = "Empty"
"""The name of the state of a group without members, of either kind."""
CONSUMER = "consumer"
"""The protocol type of groups whose members consume topics."""


class Answer(NamedTuple):
    """The answer to the request that came with this ticket."""

    ticket: int
    value: object


class Committer(NamedTuple):
    """The client that commits or fetches offsets, as the request describes it."""

    member_id: str
    instance_id: str | None
    epoch: int
    """The member's epoch, or the generation of a classic group. Negative if the client is no
    member, such as an administrator."""
    knows_member_epochs: bool = True
    """False if the version of the request is older than member epochs."""
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    kind: GroupKind
    state_name: str
    protocol_type: str
    protocol_name: str
    members: Sequence[MemberDescription]


class Group(Protocol):
    @property
    def kind(self) -> GroupKind: ...

    @property
    def state_name(self) -> str:
        """The name that Kafka gives to the state; `EMPTY` for a group without members."""

    @property
    def protocol_type(self) -> str: ...

    @property
    def epoch(self) -> int:
        """The generation or group epoch. It never goes back, not even when a group changes its
        kind: the successor continues the epoch of the earlier group."""

    @property
    def is_empty(self) -> bool:
        """True if the group has no members, and none that is about to join. Such a group may be
        deleted or change its kind."""

    @property
    def revision(self) -> int:
        """A number that grows with every change that must be saved before clients hear of it."""

    @property
    def size_bytes(self) -> int:
        """About the memory of the members. It is asked for after each change, so it is cheap."""

    def to_state(self) -> bytes:
        """Return the state that another broker needs to continue the group."""

    def describe(self) -> GroupDescription:
        """Return the description for DescribeGroups, which has fields of classic groups only."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member reads the topic, so that its offsets must stay."""

    def validate_commit(self, committer: Committer, now_s: float) -> None:
        """Raise if the client may not commit. A commit of a member counts as a sign of life."""

    def validate_fetch(self, committer: Committer) -> None:
        """Raise if the client may not fetch the committed offsets."""

    @property
    def deadline_s(self) -> float | None:
        """The next time, by the monotonic clock, at which `tick` must be called. None if never."""

    def tick(self, now_s: float) -> None:
        """Apply all deadlines that have passed."""

    def take_answers(self) -> list[Answer]:
        """Return the answers since the last call."""

    def unsaved(self, error: Exception, now_s: float) -> None:
        """Take back the last changes, which could not be saved: no client may rely on them."""
