"""The policy of sealing under any course of arrivals, answers and pauses."""

from dataclasses import dataclass
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from stratalog.block.sealing import SAVED_S, WORTHWHILE_BYTES, Reason, Sealing, Wait

MAX_BYTES = 8 << 20
WINDOW_S = 0.25
SENDERS = 5


@dataclass(frozen=True)
class Arrival:
    sender: int
    size_bytes: int


@dataclass(frozen=True)
class Pause:
    seconds: float


class Answer:
    """The oldest block under way is answered."""


steps = st.lists(
    st.one_of(
        st.builds(Arrival, st.integers(1, SENDERS), st.integers(1, WORTHWHILE_BYTES)),
        st.builds(Pause, st.sampled_from([0.0, 0.0001, 0.001, 0.003, 0.02, 0.1, 1.0, 60.0])),
        st.just(Answer()),
    ),
    max_size=120,
)
budgets = st.sampled_from([0, 1, 4, 1000, inf])


class Course:
    """A writer without blocks: it asks when a writer would, and notes the seals."""

    def __init__(self, requests_per_s: float) -> None:
        self.sealing = Sealing(
            max_bytes=MAX_BYTES, window_s=WINDOW_S, requests_per_s=requests_per_s
        )
        self.now_s = self.began_s = 1000.0
        self.open: list[int] = []
        self.bytes = 0
        self.opened_s = inf
        self.under_way: list[tuple[list[int], float]] = []
        self.small_early = 0
        self.requests_per_s = requests_per_s

    def take(self, step: Arrival | Pause | Answer) -> None:
        if isinstance(step, Arrival):
            self.open.append(step.sender)
            self.bytes += step.size_bytes
            self.opened_s = min(self.opened_s, self.now_s)
            self.sealing.arrived(step.sender, step.size_bytes, self.now_s)
            self.look()
        elif isinstance(step, Answer):
            self.answer()
        else:
            self.pass_until(self.now_s + step.seconds)

    def answer(self) -> None:
        if self.under_way:
            senders, sealed_s = self.under_way.pop(0)
            self.sealing.written(senders, sealed_s, self.now_s)
            self.look()

    def pass_until(self, end_s: float) -> None:
        while (until_s := self.look()) <= end_s:
            self.now_s = until_s
        self.now_s = end_s

    def look(self) -> float:
        """Seal the open block if it is time, and return when to look again."""
        if not self.open:
            return inf
        verdict = self.sealing.decide(self.now_s)
        if isinstance(verdict, Wait):
            assert self.now_s < verdict.until_s <= self.opened_s + WINDOW_S
            assert self.bytes < MAX_BYTES
            return verdict.until_s
        self.check(verdict)
        self.sealing.sealed(self.now_s)
        self.under_way.append((self.open, self.now_s))
        self.open, self.bytes, self.opened_s = [], 0, inf
        return inf

    def check(self, reason: Reason) -> None:
        assert (reason is Reason.FULL) == (self.bytes >= MAX_BYTES)
        assert (reason is Reason.WINDOW) <= (self.now_s >= self.opened_s + WINDOW_S)
        if reason is Reason.EARLY:
            assert self.requests_per_s > 0
            assert len(self.under_way) < 2
            if self.bytes < WORTHWHILE_BYTES:
                self.small_early += 1
                earned = (SAVED_S + self.now_s - self.began_s) * self.requests_per_s
                assert self.small_early <= earned + 1e-6


@given(steps, budgets)
def test_blocks_are_sealed_in_time_and_within_the_budget(
    course: list[Arrival | Pause | Answer], requests_per_s: float
) -> None:
    writer = Course(requests_per_s)
    for step in course:
        writer.take(step)
    writer.pass_until(writer.now_s + WINDOW_S)
    assert not writer.open, "a block outlived its window"


@given(steps)
def test_no_more_blocks_than_windows_alone_could_make_beside_the_savings(
    course: list[Arrival | Pause | Answer],
) -> None:
    """With the budget of a store that bills requests, windows included."""
    writer = Course(1 / WINDOW_S)
    sealed = 0
    for step in course:
        writer.take(Arrival(step.sender, 100) if isinstance(step, Arrival) else step)
        while writer.under_way:
            sealed += 1
            writer.answer()
    assert sealed <= (SAVED_S + writer.now_s - writer.began_s) / WINDOW_S + 1e-6
