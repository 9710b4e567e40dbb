"""The share of the broker that one request takes: memory for its parsed form and for its answer,
and turns in the lane of heavy requests.

Claims are made in this order, so that no two requests wait for each other: the frame, the parsed
form, the answer, the lane. A request in the lane waits for nothing but the control plane; to wait
for anything else it leaves the lane first.
"""

from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass

from stratalog.clock import Clock
from stratalog.kafka.server.lane import Lane, Turn
from stratalog.kafka.server.memory import Memory
from stratalog.settings import BrokerSettings

LIGHT_ENTRIES = 256
"""A request with more entries is heavy."""
FEW_LARGE_ANSWERS = 10
"""A request that names more groups, or resources with their configs, is heavy as well: the answer
to each may be some 10 KiB."""
_REQUEST_BYTES = 2 << 10
_ENTRY_BYTES = 512
"""The memory of a request while it is worked on, and of each entry. Parsed, an entry of a Fetch
takes 184 bytes and one of Metadata 136; the rest is for the objects that its handler makes."""
_NOT_IN_LANE = nullcontext()
_LEAST_ANSWER_BYTES = 1 << 20
"""Every answer may be as large, because a batch may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """The parts of a broker that all its requests share."""

    parsed: Memory
    answers: Memory
    lane: Lane
    max_entries: int

    @classmethod
    def open(cls, settings: BrokerSettings, clock: Clock) -> "Workplace":
        return cls(
            parsed=Memory(settings.request_memory_bytes // 4),
            answers=Memory(settings.answer_memory_bytes),
            lane=Lane(clock),
            max_entries=settings.max_request_entries,
        )


class Work:
    """One request's share. Every method may wait, but for `holds` and `release`."""

    __slots__ = ("_answer_bytes", "_parsed_bytes", "_turn", "_workplace")

    def __init__(self, workplace: Workplace) -> None:
        self._workplace = workplace
        self._parsed_bytes = 0
        self._answer_bytes = 0
        self._turn: Turn | None = None

    @property
    def is_heavy(self) -> bool:
        return self._turn is not None

    def parse_at_once(self, entries: int) -> bool:
        """Claim the memory of a request with so many entries, unless that has to wait."""
        size_bytes = _REQUEST_BYTES + entries * _ENTRY_BYTES
        if not self._workplace.parsed.take_at_once(size_bytes):
            return False
        self._parsed_bytes = size_bytes
        return True

    async def parse(self, entries: int) -> None:
        size_bytes = _REQUEST_BYTES + entries * _ENTRY_BYTES
        self._parsed_bytes = await self._workplace.parsed.take(size_bytes)

    def parsed(self, entries: int) -> None:
        """Give back the memory that the request does not need, now that its entries are known."""
        size_bytes = _REQUEST_BYTES + entries * _ENTRY_BYTES
        self._workplace.parsed.give(self._parsed_bytes - size_bytes)
        self._parsed_bytes = size_bytes

    async def enter_lane(self) -> None:
        turn = self._workplace.lane.turn()
        await turn.begin()
        self._turn = turn

    async def begin_turn(self) -> None:
        """Enter the lane, at a time when there is room for an answer.

        The size of an answer is known only when it is made. So the answers may be overdrawn by one
        of a heavy request, and by no second one.
        """
        turn = self._workplace.lane.turn()
        while True:
            await self.room_for(_LEAST_ANSWER_BYTES)
            await turn.begin()
            self._turn = turn
            if not self._workplace.answers.is_overdrawn:
                return
            self.holds(0)
            await turn.end()

    async def resume_turn(self) -> None:
        """Enter the lane again, if this request is heavy."""
        if self._turn is not None:
            await self._turn.begin()

    async def end_turn(self) -> None:
        """Leave the lane, if the request is in it."""
        if self._turn is not None:
            await self._turn.end()

    async def room_for(self, wanted_bytes: int) -> int:
        """Claim memory for an answer, instead of an earlier claim. Returns the bytes that it may
        have: fewer than wanted if others hold much, but enough for a batch."""
        answers = self._workplace.answers
        self.holds(0)
        self._answer_bytes = await answers.take(wanted_bytes, least_bytes=_LEAST_ANSWER_BYTES)
        return self._answer_bytes

    def holds(self, answer_bytes: int) -> None:
        """Note the size of the answer, now that it is made."""
        if answer_bytes != self._answer_bytes:
            self._workplace.answers.give(self._answer_bytes - answer_bytes)
            self._answer_bytes = answer_bytes

    def away(self) -> AbstractAsyncContextManager[None]:
        """Let other heavy requests work while this one waits for records."""
        return _NOT_IN_LANE if self._turn is None else self._turn.away()

    def release(self) -> None:
        """Give everything back. May be called twice."""
        if self._turn is not None:
            self._turn.abandon()
        self.holds(0)
        if self._parsed_bytes:
            self._workplace.parsed.give(self._parsed_bytes)
            self._parsed_bytes = 0
