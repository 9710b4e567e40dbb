"""The deadlines of members: for the next sign of life, and for giving up partitions.

Deadlines are not saved. A broker that takes the group over gives every member the full time again.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from stratalog.groups.consumer.model import Member, MemberState


@dataclass(slots=True)
class _MemberDeadlines:
    session_s: float
    revoke_s: float | None = None
    revoke_epoch: int = -1
    """The epoch at which the member was asked to give up partitions."""


class Deadlines:
    def __init__(self, session_ms: int) -> None:
        self._session_s = session_ms / 1000
        self._members: dict[str, _MemberDeadlines] = {}

    def set_session_ms(self, session_ms: int) -> None:
        """Give members another time from their next sign of life on."""
        self._session_s = session_ms / 1000

    def heard(self, member: Member, now_s: float) -> None:
        """Set the deadlines of a member that has just given a sign of life."""
        session_s = now_s + self._session_s
        deadlines = self._members.setdefault(member.member_id, _MemberDeadlines(session_s))
        deadlines.session_s = session_s
        if member.state is not MemberState.UNREVOKED:
            deadlines.revoke_s = None
        elif deadlines.revoke_s is None or deadlines.revoke_epoch != member.epoch:
            deadlines.revoke_s = now_s + member.rebalance_timeout_ms / 1000
            deadlines.revoke_epoch = member.epoch

    def away(self, member_id: str) -> None:
        """Note that a static member left for a while: its session goes on, but it need not give up
        partitions."""
        self._members[member_id].revoke_s = None

    def keep_only(self, member_ids: Iterable[str]) -> None:
        kept = frozenset(member_ids)
        for member_id in self._members.keys() - kept:
            del self._members[member_id]

    @property
    def earliest_s(self) -> float | None:
        return min((_earliest(each) for each in self._members.values()), default=None)

    def missed(self, now_s: float) -> list[str]:
        """Return the ids of the members whose time is up."""
        return [key for key, each in self._members.items() if _earliest(each) <= now_s]


def _earliest(deadlines: _MemberDeadlines) -> float:
    if deadlines.revoke_s is None:
        return deadlines.session_s
    return min(deadlines.session_s, deadlines.revoke_s)
