"""A classic group with a clock that is moved by hand, and members that are easy to speak for."""

from collections.abc import Mapping
from typing import Any

from stratalog.groups.classic.group import ClassicGroup
from stratalog.groups.classic.model import (
    ClassicLimits,
    JoinAnswer,
    JoinRequest,
    Leaving,
    SyncAnswer,
    SyncRequest,
)
from stratalog.groups.group import Committer

LIMITS = ClassicLimits(
    initial_rebalance_delay_ms=0,
    min_session_timeout_ms=6_000,
    max_session_timeout_ms=60_000,
    max_size=100,
)
SESSION_MS = 10_000
REBALANCE_MS = 30_000


class Rig:
    def __init__(self, limits: ClassicLimits = LIMITS) -> None:
        self.limits = limits
        self.group = ClassicGroup(limits)
        self.now_s = 1000.0
        self.tickets = 0
        self.answers: dict[int, Any] = {}

    def _collect(self) -> None:
        for ticket, value in self.group.take_answers():
            assert ticket not in self.answers, "a request was answered twice"
            self.answers[ticket] = value

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        known_id: bool = False,
        skips: bool = True,
    ) -> int:
        self.tickets += 1
        request = JoinRequest(
            member_id=member_id,
            instance_id=instance,
            client_id="client",
            client_host="/here",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols={"range": b"meta"} if protocols is None else protocols,
            requires_known_id=known_id,
            can_skip_assignment=skips,
        )
        self.group.join(self.tickets, request, self.now_s)
        self._collect()
        return self.tickets

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        self.tickets += 1
        request = SyncRequest(
            member_id=member_id,
            instance_id=instance,
            generation=generation,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=assignments or {},
        )
        self.group.sync(self.tickets, request, self.now_s)
        self._collect()
        return self.tickets

    def beat(self, member_id: str, generation: int, instance: str | None = None) -> None:
        self.group.heartbeat(member_id, instance, generation, self.now_s)

    def leave(self, *leaving: str, instance: str | None = None) -> list[Any]:
        found = self.group.leave(
            [Leaving(member_id=member_id, instance_id=instance) for member_id in leaving],
            self.now_s,
        )
        self._collect()
        return [None if error is None else type(error) for error in found]

    def advance(self, seconds: float) -> None:
        """Let time pass, waking the group at each of its deadlines."""
        end_s = self.now_s + seconds
        while (deadline_s := self.group.deadline_s) is not None and deadline_s <= end_s:
            self.now_s = max(self.now_s, deadline_s)
            self.group.tick(self.now_s)
            self._collect()
            assert self.group.deadline_s is None or self.group.deadline_s > self.now_s
        self.now_s = end_s

    def joined(self, ticket: int) -> JoinAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, JoinAnswer)
        assert answer.error is None
        return answer

    def assigned(self, ticket: int) -> bytes:
        answer = self.answers[ticket]
        assert isinstance(answer, SyncAnswer)
        assert answer.error is None
        return answer.assignment

    def error(self, ticket: int) -> type[Exception] | None:
        error = self.answers[ticket].error
        return None if error is None else type(error)

    def waits(self, ticket: int) -> bool:
        return ticket not in self.answers

    def stable(self, count: int, *, statics: int = 0) -> list[str]:
        """A stable generation of so many members, the static ones first; the first leads."""
        first = self.join(instance="i0" if statics else None)
        ids = [self.joined(first).member_id]
        for number in range(1, count):
            ticket = self.join(instance=f"i{number}" if number < statics else None)
            again = [self.join(each, instance=self._instance(each)) for each in ids]
            ids = [*[self.joined(each).member_id for each in again], self.joined(ticket).member_id]
        self.assign(ids)
        return ids

    def assign(self, ids: list[str]) -> None:
        generation = self.group.generation
        assignments = {each: each.encode() for each in ids}
        leader = self.group.members.leader
        for each in ids:
            given = assignments if each == leader else {}
            self.sync(each, generation, given, instance=self._instance(each))
        assert self.group.state_name == "Stable"

    def _instance(self, member_id: str) -> str | None:
        return self.group.members[member_id].instance_id

    def commit(self, member_id: str, generation: int, instance: str | None = None) -> None:
        self.group.validate_commit(Committer(member_id, instance, generation), self.now_s)
