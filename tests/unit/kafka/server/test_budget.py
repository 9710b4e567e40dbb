from stratalog.kafka.server.budget import ByteBudget, Grant


class Waiters:
    """Claims made in order, and the order in which they were granted."""

    def __init__(self, total_bytes: int) -> None:
        self.budget = ByteBudget(total_bytes)
        self.granted: list[str] = []

    def claim(self, name: str, size_bytes: int) -> Grant:
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
