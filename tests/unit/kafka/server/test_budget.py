from stratalog.kafka.server.budget import ByteBudget, Grant, Share


class Waiters:
    """Claims made in order, and the order in which they were granted."""

    def __init__(self, total_bytes: int) -> None:
        self.budget = ByteBudget(total_bytes)
        self.granted: list[str] = []

    def claim(self, name: str, size_bytes: int) -> Grant:
        """Claim bytes for a request that is whole as soon as it has them."""

        def granted() -> None:
            self.granted.append(name)
            grant.arrived()

        grant = self.budget.request(size_bytes, granted)
        if grant.held:
            granted()
        return grant

    def begin(self, name: str, size_bytes: int) -> Grant:
        """Claim bytes for the first part of a request."""
        grant = self.budget.request(size_bytes, lambda: self.granted.append(name))
        if grant.held:
            self.granted.append(name)
        return grant


def test_claims_within_the_budget_are_held_at_once_to_the_last_byte() -> None:
    waiters = Waiters(10)
    waiters.claim("a", 4)
    waiters.claim("b", 6)
    assert waiters.granted == ["a", "b"]
    assert not waiters.claim("c", 1).held


def test_claims_are_granted_first_come_first_served_even_if_a_later_one_would_fit() -> None:
    waiters = Waiters(10)
    first = waiters.claim("a", 8)
    waiters.claim("b", 9)
    waiters.claim("c", 1)
    assert waiters.granted == ["a"]
    first.release()
    assert waiters.granted == ["a", "b", "c"]


def test_a_claim_larger_than_the_budget_is_let_in_when_it_is_alone() -> None:
    waiters = Waiters(10)
    first = waiters.claim("a", 1)
    large = waiters.claim("large", 100)
    waiters.claim("b", 1)
    assert waiters.granted == ["a"]
    first.release()
    assert waiters.granted == ["a", "large"]
    large.release()
    assert waiters.granted == ["a", "large", "b"]


def test_a_waiting_claim_that_is_released_lets_those_behind_it_through() -> None:
    waiters = Waiters(10)
    waiters.claim("a", 5)
    large = waiters.claim("large", 6)
    waiters.claim("b", 5)
    large.release()
    assert waiters.granted == ["a", "b"]


def test_releasing_twice_gives_the_bytes_back_once() -> None:
    waiters = Waiters(10)
    first = waiters.claim("a", 5)
    waiters.claim("b", 5)
    first.release()
    first.release()
    assert waiters.budget.used_bytes == 5


def waits(grant: Grant) -> bool:
    return not grant.held


def test_requests_that_fill_the_budget_in_part_do_not_block_one_another_for_ever() -> None:
    waiters = Waiters(10)
    first, second, third = (waiters.begin(name, 3) for name in "abc")
    for grant in (first, second, third):
        grant.claim(4)
    assert not waits(first)
    assert waits(second)
    first.claim(5)
    assert not waits(first)
    first.arrived()
    assert waits(second)
    first.release()
    assert not waits(second)
    second.arrived()
    second.release()
    assert not waits(third)


def test_one_request_overdraws_at_a_time_and_a_slow_one_gives_way_when_it_is_gone() -> None:
    waiters = Waiters(10)
    slow, waiting = waiters.begin("slow", 8), waiters.begin("waiting", 2)
    slow.claim(90)
    waiting.claim(1)
    assert not waits(slow)
    assert waits(waiting)
    assert waiters.budget.used_bytes == 100
    slow.release()
    assert not waits(waiting)
    assert waiters.budget.used_bytes == 3


def test_no_request_overdraws_while_a_whole_one_is_going_to_free_its_bytes() -> None:
    waiters = Waiters(10)
    whole = waiters.claim("whole", 5)
    part = waiters.begin("part", 5)
    part.claim(1)
    assert waits(part)
    whole.release()
    assert not waits(part)
    part.release()
    assert waiters.budget.used_bytes == 0


def test_small_requests_are_served_beside_large_ones_that_wait() -> None:
    budget = ByteBudget(100)
    granted: list[str] = []
    large = budget.request(70, lambda: None, is_small=False)
    assert large.held
    large.arrived()
    waiting = budget.request(10, lambda: granted.append("large"), is_small=False)
    assert not waiting.held
    assert budget.is_short
    small = budget.request(25, lambda: None)
    assert small.held
    large.release()
    assert granted == ["large"]
    assert not budget.is_short


def test_a_connection_with_more_than_a_quarter_waits_behind_all_others() -> None:
    budget = ByteBudget(100)
    granted: list[str] = []
    greedy, modest = Share(), Share()
    first = budget.request(60, lambda: None, share=greedy)
    first.arrived()
    assert not budget.request(10, lambda: granted.append("greedy"), share=greedy).held
    assert budget.request(10, lambda: None, share=modest).held
    assert budget.request(10, lambda: None, share=modest).held
    assert granted == []
    first.release()
    assert granted == ["greedy"]
    assert greedy.held_bytes == 10


def test_a_connection_alone_may_have_half_of_the_budget() -> None:
    budget, share = ByteBudget(100), Share()
    for _ in range(6):
        grant = budget.request(10, lambda: None, share=share)
        assert grant.held
        grant.arrived()
    assert not budget.request(10, lambda: None, share=share).held


def test_a_request_that_overdraws_takes_nothing_from_small_ones() -> None:
    budget = ByteBudget(100)
    first = budget.request(70, lambda: None, is_small=False)
    assert first.held
    large = budget.request(60, lambda: None, is_small=False)
    assert large.held, "no whole request is in memory"
    assert budget.used_bytes == 130
    assert budget.request(25, lambda: None).held
