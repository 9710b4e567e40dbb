import pytest
from tests.support.failing_calls import Failing, HastyClock

from stratalog.errors import CallError, RetriableError
from stratalog.retry import Backoff, retry


async def test_a_call_is_repeated_until_it_succeeds() -> None:
    assert await retry(Failing(9), clock=HastyClock()) == 10


async def test_the_last_attempt_comes_before_the_deadline() -> None:
    clock, failing = HastyClock(), Failing(100)
    deadline_s = clock.monotonic() + 10
    with pytest.raises(RetriableError):
        await retry(failing, clock=clock, deadline_s=deadline_s)
    assert deadline_s - 2 <= clock.monotonic() <= deadline_s


async def test_attempts_are_counted() -> None:
    failing = Failing(100)
    with pytest.raises(RetriableError):
        await retry(failing, clock=HastyClock(), attempts=3)
    assert failing.calls == 3


async def test_other_failures_are_not_repeated() -> None:
    failing = Failing(1, CallError("wrong"))
    with pytest.raises(CallError):
        await retry(failing, clock=HastyClock())
    assert failing.calls == 1


async def test_each_retry_is_reported_with_its_pause() -> None:
    pauses: list[float] = []
    await retry(Failing(3), clock=HastyClock(), on_retry=lambda _, pause_s: pauses.append(pause_s))
    assert pauses == [0.05, 0.1, 0.2]


def test_pauses_double_up_to_the_longest_and_chance_shortens_them() -> None:
    backoff = Backoff(first_s=1, longest_s=3, spread=0.5)
    assert [backoff.pause_s(n, lambda _: b"\xff") for n in (1, 2, 3, 9)] == [1, 2, 3, 3]
    assert [backoff.pause_s(n, lambda _: b"\x00") for n in (1, 2, 3)] == [0.5, 1, 1.5]


async def test_a_call_may_fail_for_hours() -> None:
    backoff = Backoff(first_s=0.5, longest_s=5.0)
    assert await retry(Failing(2000), clock=HastyClock(), backoff=backoff) == 2001
