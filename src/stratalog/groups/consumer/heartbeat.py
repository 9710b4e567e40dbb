"""A heartbeat and its answer, and the check of a heartbeat that needs no group."""

from dataclasses import dataclass

from stratalog.groups.consumer.assignors import ASSIGNORS
from stratalog.groups.consumer.errors import InvalidHeartbeatError, UnsupportedAssignorError
from stratalog.groups.consumer.model import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_PARTITIONS,
    Partitions,
)
from stratalog.groups.consumer.subscriptions import compiled

NOT_CHANGED_MS = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """In a field, None, or -1 for the timeout, means no change since the last heartbeat."""

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NOT_CHANGED_MS
    topic_names: frozenset[str] | None = None
    topic_pattern: str | None = None
    """An empty text removes the pattern of the member."""
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def joins(self) -> bool:
        return self.epoch == JOIN_EPOCH

    @property
    def leaves(self) -> bool:
        return self.epoch < JOIN_EPOCH

    @property
    def is_full(self) -> bool:
        """True if all fields are set, because the member is new or does not know whether its last
        heartbeat arrived."""
        subscribes = self.topic_names is not None or self.topic_pattern is not None
        timed = self.rebalance_timeout_ms != NOT_CHANGED_MS
        return self.joins or (timed and subscribes and self.owned is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    member_id: str
    epoch: int
    assignment: Partitions | None
    """None if the assignment is the same as in the answer before."""


def check_heartbeat(beat: Heartbeat) -> None:
    """Raise if the fields of a heartbeat are wrong, or do not go together."""
    for name, value in (("instance id", beat.instance_id), ("rack", beat.rack_id)):
        if value == "":
            raise InvalidHeartbeatError(f"the {name} of a heartbeat is empty: leave it out")
    if not beat.group_id:
        raise InvalidHeartbeatError("a heartbeat needs a group id")
    if not beat.member_id:
        raise InvalidHeartbeatError("a heartbeat needs the member id that its consumer made")
    if beat.joins:
        _check_join(beat)
    elif beat.epoch == LEAVE_STATIC_EPOCH and beat.instance_id is None:
        raise InvalidHeartbeatError("only a static member can leave for a while: no instance id")
    elif beat.epoch < LEAVE_STATIC_EPOCH:
        raise InvalidHeartbeatError(f"{beat.epoch} is no member epoch")
    if beat.assignor is not None and beat.assignor not in ASSIGNORS:
        known = ", ".join(sorted(ASSIGNORS))
        raise UnsupportedAssignorError(
            f"there is no server-side assignor {beat.assignor!r}: choose one of {known}"
        )
    if beat.topic_pattern:
        compiled(beat.topic_pattern)


def _check_join(beat: Heartbeat) -> None:
    if beat.rebalance_timeout_ms == NOT_CHANGED_MS:
        raise InvalidHeartbeatError("a member that joins must send a rebalance timeout")
    if beat.owned != NO_PARTITIONS:
        raise InvalidHeartbeatError("a member that joins cannot own partitions")
    if beat.topic_names is None and beat.topic_pattern is None:
        raise InvalidHeartbeatError("a member that joins must subscribe to topics")
