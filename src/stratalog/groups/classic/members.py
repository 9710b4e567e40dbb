"""The members of a classic group: by member id, by the instance ids of static ones, the leader."""

from collections.abc import Iterator
from math import inf

from stratalog.groups.classic.member import ClassicMember
from stratalog.groups.errors import FencedInstanceError, UnknownMemberError


class Members:
    def __init__(self) -> None:
        self._members: dict[str, ClassicMember] = {}
        self._statics: dict[str, str] = {}
        self.leader: str | None = None
        """The id of the member that assigns: the first one to join, until it leaves."""
        self.size_bytes = 0
        """About the memory of all members."""

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(list(self._members.values()))

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> ClassicMember:
        return self._members[member_id]

    def get(self, member_id: str) -> ClassicMember | None:
        return self._members.get(member_id)

    def static_id(self, instance_id: str) -> str | None:
        return self._statics.get(instance_id)

    def validated(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """Return the member with this id. Raises if the instance id has passed to another
        member."""
        if instance_id is not None:
            current = self._statics.get(instance_id)
            if current is None:
                raise UnknownMemberError(f"no member has the instance id {instance_id!r}")
            if current != member_id:
                raise FencedInstanceError(f"instance id {instance_id!r} has a newer member")
        if member_id not in self._members:
            raise UnknownMemberError(f"no member has the id {member_id!r}")
        return self._members[member_id]

    def add(self, member: ClassicMember) -> None:
        self._members[member.member_id] = member
        self.measure(member)
        if member.instance_id is not None:
            self._statics[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def measure(self, *changed: ClassicMember) -> None:
        """Count the memory of members whose protocols or assignments have changed."""
        for member in changed:
            self.size_bytes += member.size_bytes - member.counted_bytes
            member.counted_bytes = member.size_bytes

    def remove(self, member: ClassicMember) -> None:
        del self._members[member.member_id]
        self.size_bytes -= member.counted_bytes
        member.counted_bytes = 0
        if self._statics.get(member.instance_id or "") == member.member_id:
            del self._statics[member.instance_id or ""]
        if self.leader == member.member_id:
            self.leader = next(iter(self._members), None)

    def rename(self, member: ClassicMember, member_id: str) -> None:
        """Give a static member the id of its new process. It keeps everything else."""
        was_leader = self.leader == member.member_id
        self._members = {
            (member_id if key == member.member_id else key): each
            for key, each in self._members.items()
        }
        member.member_id = member_id
        if member.instance_id is not None:
            self._statics[member.instance_id] = member_id
        if was_leader:
            self.leader = member_id

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined again, else elect a member that has. Return False if no
        member has joined."""
        joined = [member.member_id for member in self if member.joining is not None]
        if joined and self.leader not in joined:
            self.leader = joined[0]
        return bool(joined)

    @property
    def all_joined(self) -> bool:
        return all(member.joining is not None for member in self._members.values())

    @property
    def joining_count(self) -> int:
        return sum(member.joining is not None for member in self._members.values())

    @property
    def rebalance_timeout_s(self) -> float:
        """The time that the slowest member may take."""
        longest_ms = max((each.rebalance_timeout_ms for each in self._members.values()), default=0)
        return longest_ms / 1000

    @property
    def deadline_s(self) -> float:
        """The time at which the first session ends."""
        return min((member.expires_s for member in self._members.values()), default=inf)
