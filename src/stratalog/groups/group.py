"""What the coordinator needs of a group, whichever kind it is.

A group is a state machine without I/O: its methods are called with the time, change it at once and
never wait. What changed is saved by the coordinator, which compares `revision`; what is to be
answered later comes out of `take_answers`, and is given to the clients after the save.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from stratalog.control.groups.model import GroupKind

EMPTY = "Empty"
"""The state's name of a group without members, of either kind."""


class Answer(NamedTuple):
    """An answer to a request that the group was given under this ticket."""

    ticket: int
    value: object


class Committer(NamedTuple):
    """Who commits or fetches offsets, as the request says."""

    member_id: str
    instance_id: str | None
    epoch: int
    """A classic group's generation. Negative: no member, such as an administrator."""
    knows_member_epochs: bool = True
    """Whether the request's version knows that the number may be a member's epoch."""


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
        """As Kafka tells it; `EMPTY` of a group without members."""

    @property
    def protocol_type(self) -> str: ...

    @property
    def epoch(self) -> int:
        """The generation or group epoch. It never goes back, also when a group changes its kind:
        the successor of a group starts from its epoch."""

    @property
    def is_empty(self) -> bool:
        """Without members, and without any on their way: it may be deleted or change its kind."""

    @property
    def revision(self) -> int:
        """Grows with every change that must be saved before anybody is told of it."""

    def to_state(self) -> bytes:
        """What another broker needs to go on with the group."""

    def describe(self) -> GroupDescription:
        """For DescribeGroups, which tells of classic groups."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, so that its offsets must stay."""

    def validate_commit(self, committer: Committer, now_s: float) -> None:
        """Raise what forbids a commit. A member's commit counts as a sign of life."""

    def validate_fetch(self, committer: Committer) -> None:
        """Raise what forbids a fetch of the committed offsets."""

    @property
    def deadline_s(self) -> float | None:
        """When `tick` has something to do, by the monotonic clock; None if never."""

    def tick(self, now_s: float) -> None:
        """Do what is due."""

    def take_answers(self) -> list[Answer]:
        """The answers since the last call."""

    def unsaved(self, error: Exception, now_s: float) -> None:
        """The last changes could not be saved: nobody may rely on them."""
