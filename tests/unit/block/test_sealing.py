from math import inf

from stratalog.block.sealing import SAVED_S, WORTHWHILE_BYTES, Reason, Sealing, Wait

WINDOW_S = 0.25


class Line:
    """A policy and the time, moved by hand."""

    def __init__(self, *, requests_per_s: float = inf, max_bytes: int = 8 << 20) -> None:
        self.sealing = Sealing(
            max_bytes=max_bytes, window_s=WINDOW_S, requests_per_s=requests_per_s
        )
        self.now_s = 100.0
        self.open: list[int] = []
        self.under_way: list[tuple[list[int], float]] = []

    def passes(self, seconds: float) -> None:
        self.now_s += seconds

    def arrives(self, *senders: int, size_bytes: int = 100) -> None:
        for sender in senders:
            self.open.append(sender)
            self.sealing.arrived(sender, size_bytes, self.now_s)

    def verdict(self) -> Reason | Wait:
        return self.sealing.decide(self.now_s)

    def waits(self, seconds: float) -> bool:
        verdict = self.verdict()
        return isinstance(verdict, Wait) and abs(verdict.until_s - self.now_s - seconds) < 1e-9

    def is_sealed(self) -> None:
        self.sealing.sealed(self.now_s)
        self.under_way.append((self.open, self.now_s))
        self.open = []

    def is_answered(self) -> None:
        senders, sealed_s = self.under_way.pop(0)
        self.sealing.written(senders, sealed_s, self.now_s)

    def round(self, *senders: int, takes_s: float = 0.004) -> None:
        """Let the senders arrive, and be answered."""
        self.arrives(*senders)
        self.is_sealed()
        self.passes(takes_s)
        self.is_answered()

    def habit(self, *senders: int, back_s: float = 0.001, rounds: int = 10) -> None:
        """Let the senders return so often that they are known for it."""
        for _ in range(rounds):
            self.round(*senders)
            self.passes(back_s)


def test_a_lone_request_is_sealed_at_once() -> None:
    line = Line()
    line.arrives(1)
    assert line.verdict() is Reason.EARLY


def test_a_block_is_full_at_its_size_and_not_a_byte_sooner() -> None:
    line = Line(requests_per_s=0, max_bytes=200)
    line.arrives(1, size_bytes=199)
    assert line.waits(WINDOW_S)
    line.arrives(1, size_bytes=1)
    assert line.verdict() is Reason.FULL


def test_without_a_budget_the_window_alone_decides() -> None:
    line = Line(requests_per_s=0)
    line.arrives(1)
    line.passes(WINDOW_S - 0.001)
    line.arrives(2, size_bytes=2 * WORTHWHILE_BYTES)
    assert line.waits(0.001)
    line.passes(0.001)
    assert line.verdict() is Reason.WINDOW


def test_five_requests_that_a_client_always_has_in_flight_share_a_block() -> None:
    line = Line()
    line.habit(*[1] * 5)
    for _ in range(4):
        line.arrives(1)
        assert line.waits(0.002), "more of them are on their way"
    line.arrives(1)
    assert line.verdict() is Reason.EARLY


def test_a_client_that_sends_fewer_requests_than_before_is_waited_for_a_moment_only() -> None:
    line = Line()
    line.habit(*[1] * 5)
    line.arrives(1)
    line.passes(0.002)
    assert line.verdict() is Reason.EARLY


def test_a_client_that_sends_fewer_requests_for_long_is_known_for_the_fewer() -> None:
    line = Line()
    line.habit(*[1] * 5)
    line.habit(1, 1, rounds=100)
    line.arrives(1, 1)
    assert line.verdict() is Reason.EARLY


def test_senders_that_return_soon_are_waited_for() -> None:
    line = Line()
    line.habit(1, 2, 3)
    line.arrives(1, 3)
    assert isinstance(line.verdict(), Wait)
    line.arrives(2)
    assert line.verdict() is Reason.EARLY


def test_a_sender_that_is_overdue_is_not_waited_for() -> None:
    line = Line()
    line.habit(1, 2)
    line.passes(0.004)
    line.arrives(1)
    assert line.verdict() is Reason.EARLY


def test_no_sender_is_waited_for_longer_than_a_block_takes() -> None:
    line = Line()
    line.habit(1, 2, back_s=0.004)
    line.arrives(1)
    line.passes(0.005)
    assert line.verdict() is Reason.EARLY


def test_a_sender_that_returns_after_a_second_is_not_waited_for() -> None:
    line = Line()
    line.habit(1, 2, back_s=1.0)
    line.arrives(1)
    assert line.verdict() is Reason.EARLY


def crowd() -> Line:
    """A thousand senders, each of which returns after a second."""
    line = Line()
    line.habit(*range(1000), back_s=1.0, rounds=3)
    line.passes(-0.5)
    return line


def test_a_crowd_shares_the_blocks_of_windows() -> None:
    line = crowd()
    line.arrives(7)
    opened_s = line.now_s
    while isinstance(verdict := line.verdict(), Wait):
        line.passes(verdict.until_s - line.now_s)
    assert verdict is Reason.WINDOW
    assert line.now_s - opened_s >= WINDOW_S


def test_a_sender_that_returns_soon_does_not_wait_for_a_crowd() -> None:
    line = crowd()
    line.habit(5000)
    line.arrives(7)
    assert isinstance(line.verdict(), Wait)
    line.arrives(5000)
    assert line.verdict() is Reason.EARLY


def test_a_crowd_that_has_gone_is_forgotten() -> None:
    line = crowd()
    line.passes(10.0)
    line.arrives(7)
    assert line.verdict() is Reason.EARLY


def test_early_blocks_wait_while_two_are_under_way() -> None:
    line = Line()
    for sender in (1, 2):
        line.arrives(sender)
        line.is_sealed()
    line.arrives(3)
    assert line.waits(WINDOW_S)
    line.is_answered()
    assert line.verdict() is Reason.EARLY


def test_an_empty_budget_is_waited_for() -> None:
    line = Line(requests_per_s=4)
    for _ in range(round(4 * SAVED_S)):
        line.arrives(1)
        assert line.verdict() is Reason.EARLY
        line.is_sealed()
        line.is_answered()
    line.arrives(1)
    assert line.waits(0.25)
    line.passes(0.1)
    assert line.waits(0.15)


def test_a_window_takes_from_the_budget_too() -> None:
    line = Line(requests_per_s=1)
    for _ in range(50):
        line.arrives(1)
        line.is_sealed()
        line.is_answered()
    line.passes(0.99)
    line.arrives(1)
    assert line.waits(0.01)


def test_a_block_with_enough_bytes_needs_no_budget() -> None:
    line = Line(requests_per_s=0.001)
    line.arrives(1)
    line.is_sealed()
    line.is_answered()
    line.arrives(1, size_bytes=WORTHWHILE_BYTES - 1)
    assert isinstance(line.verdict(), Wait)
    line.arrives(1, size_bytes=1)
    line.passes(0.002)
    assert line.verdict() is Reason.EARLY


def large_requests() -> Line:
    """A client that always has five large requests in flight, of which the first has arrived."""
    line = Line()
    line.habit(*[1] * 5)
    line.arrives(1, size_bytes=WORTHWHILE_BYTES)
    return line


def test_a_block_with_enough_bytes_is_not_held_for_the_rest_while_no_block_is_under_way() -> None:
    assert large_requests().verdict() is Reason.EARLY


def test_a_block_with_a_byte_too_few_is_held_for_the_rest() -> None:
    line = Line()
    line.habit(*[1] * 5)
    line.arrives(1, size_bytes=WORTHWHILE_BYTES - 1)
    assert line.waits(0.002)


def test_the_rest_collects_while_a_block_is_under_way() -> None:
    line = large_requests()
    line.is_sealed()
    line.arrives(1, size_bytes=WORTHWHILE_BYTES)
    assert line.waits(0.002), "three more are on their way"
    line.arrives(1, 1, 1, size_bytes=WORTHWHILE_BYTES)
    assert line.verdict() is Reason.EARLY


def test_enough_bytes_for_a_request_do_not_part_a_crowd() -> None:
    line = crowd()
    line.arrives(7, size_bytes=WORTHWHILE_BYTES)
    assert isinstance(line.verdict(), Wait)


def test_a_stream_fills_its_blocks() -> None:
    line = Line(max_bytes=8000)
    line.habit(*[1] * 40)
    for _ in range(7):
        line.arrives(1, size_bytes=1000)
        assert isinstance(line.verdict(), Wait)
        line.passes(0.0019)
    line.arrives(1, size_bytes=1000)
    assert line.verdict() is Reason.FULL
