"""The wrappers, around a store in memory."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random

import pytest
from tests.unit.objects.fake_clock import FakeClock

from stratalog.clock import SystemClock
from stratalog.metrics import Metrics
from stratalog.objects import (
    Create,
    Fault,
    FaultPlan,
    FaultyStore,
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectStore,
    RandomFaults,
    Range,
    RetryPolicy,
    ScriptedFaults,
    ShortReadError,
    StoreUnavailableError,
    open_store,
)
from stratalog.objects.metered import MeteredStore
from stratalog.objects.retrying import RetryingStore
from stratalog.retry import Backoff


async def stream(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


POLICY = RetryPolicy(attempts=3, backoff=Backoff(first_s=1.0, longest_s=3.0, spread=0.5))


def memory() -> ObjectStore:
    return open_store("memory:", clock=SystemClock())


def retrying(inner: ObjectStore, plan: FaultPlan, clock: FakeClock) -> RetryingStore:
    faulty = FaultyStore(inner, plan, clock=clock)
    return RetryingStore(faulty, clock=clock, entropy=Random(1).randbytes, policy=POLICY)


async def test_retrying_repeats_as_often_as_it_may() -> None:
    clock = FakeClock()
    store = retrying(memory(), ScriptedFaults([("put", Fault.UNAVAILABLE)] * 2), clock)
    await store.put("x", [b"1"])
    assert len(clock.slept) == 2


async def test_retrying_gives_up_with_the_last_error() -> None:
    clock = FakeClock()
    store = retrying(memory(), ScriptedFaults([("put", Fault.UNAVAILABLE)] * 3), clock)
    with pytest.raises(StoreUnavailableError):
        await store.put("x", [b"1"])
    assert len(clock.slept) == 2


async def test_retrying_does_not_repeat_what_cannot_get_better() -> None:
    clock = FakeClock()
    store = retrying(memory(), ScriptedFaults([]), clock)
    with pytest.raises(ObjectNotFoundError):
        await store.get("x")
    assert clock.slept == []


@pytest.mark.parametrize(
    ("chance", "expected"), [(b"\x00", [0.5, 1.0, 1.5, 1.5]), (b"\xff", [1.0, 2.0, 3.0, 3.0])]
)
def test_delays_double_up_to_a_limit_and_spread(chance: bytes, expected: list[float]) -> None:
    delays = [POLICY.backoff.pause_s(failures, lambda _: chance) for failures in (1, 2, 3, 9)]
    assert delays == expected


@pytest.mark.parametrize("operation", ["get", "head", "get_ranges", "copy", "delete"])
async def test_retrying_covers_every_operation(operation: str) -> None:
    inner = memory()
    await inner.put("x", [b"data"])
    script = ScriptedFaults([(operation, Fault.LOST_REPLY)])
    store = retrying(inner, script, FakeClock())
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "get": lambda: store.get("x"),
        "head": lambda: store.head("x"),
        "get_ranges": lambda: store.get_ranges("x", [Range(0, 2)]),
        "copy": lambda: store.copy("x", "y"),
        "delete": lambda: store.delete(["x"]),
    }
    await calls[operation]()
    assert script.remaining == []


async def test_a_listing_that_broke_off_goes_on_after_its_last_key() -> None:
    inner = memory()
    for key in ("a", "b", "c"):
        await inner.put(key, [b""])
    script = ScriptedFaults([("list", Fault.LOST_REPLY)] * 3)
    store = retrying(inner, script, FakeClock())
    assert [info.key async for info in store.list("")] == ["a", "b", "c"]
    assert script.remaining == []


async def test_a_stream_is_not_repeated() -> None:
    clock = FakeClock()
    store = retrying(memory(), ScriptedFaults([("put_stream", Fault.UNAVAILABLE)]), clock)
    with pytest.raises(StoreUnavailableError):
        await store.put_stream("x", stream(b"1"))
    assert clock.slept == []
    assert await store.put_stream("x", stream(b"12")) == 2


async def test_a_conditional_copy_whose_reply_was_lost_knows_its_own_object() -> None:
    inner = memory()
    await inner.put("x", [b"data"])
    store = retrying(inner, ScriptedFaults([("put", Fault.LOST_REPLY)]), FakeClock())
    await store.copy("x", "y", mode=Create())
    with pytest.raises(ObjectExistsError):
        await store.copy("x", "y", mode=Create())


async def test_metered_counts_calls_bytes_errors_and_time() -> None:
    metrics, clock = Metrics(), FakeClock()
    slow = FaultyStore(memory(), ScriptedFaults([("put", Fault.SLOW)]), clock=clock)
    store = MeteredStore(slow, metrics=metrics, clock=clock)
    await store.put("x", [b"12345", b"678"])
    await store.get("x")
    await store.put_stream("x", stream(b"12345", b"6789"))
    await store.get_ranges("x", [Range(0, 2), Range(4, 5)])
    await store.head("x")
    await store.copy("x", "y")
    assert [info.key async for info in store.list("")] == ["x", "y"]
    await store.delete(["y"])
    with pytest.raises(ObjectNotFoundError):
        await store.get("y")

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"stratalog_objects_{name}", labels)

    assert value("requests_total", operation="get") == 2
    for operation in ("put", "put_stream", "get_ranges", "head", "copy", "list", "delete"):
        assert value("requests_total", operation=operation) == 1
    assert value("bytes_total", operation="put") == 8
    assert value("bytes_total", operation="put_stream") == 9
    assert value("bytes_total", operation="get") == 8
    assert value("bytes_total", operation="get_ranges") == 3
    assert value("errors_total", operation="get", error="ObjectNotFoundError") == 1
    assert value("seconds_sum", operation="put") == 1.0
    assert value("seconds_count", operation="get") == 2


async def test_open_store_counts_every_attempt() -> None:
    metrics = Metrics()
    store = open_store("memory:", clock=FakeClock(), metrics=metrics)
    await store.put("x", [b"1"])
    sample = "stratalog_objects_requests_total"
    assert metrics.registry.get_sample_value(sample, {"operation": "put"}) == 1


async def test_a_lost_reply_is_lost_after_the_deed() -> None:
    inner = memory()
    script = ScriptedFaults([("put", Fault.LOST_REPLY), ("delete", Fault.UNAVAILABLE)])
    store = FaultyStore(inner, script, clock=FakeClock())
    with pytest.raises(StoreUnavailableError):
        await store.put("x", [b"1"])
    with pytest.raises(StoreUnavailableError):
        await store.delete(["x"])
    assert bytes((await inner.get("x")).data) == b"1"


async def test_reads_can_break_off_or_lie() -> None:
    inner = memory()
    await inner.put("x", [b"0123456789"])
    faults = [Fault.SHORT_READ, Fault.CORRUPT_READ]
    script = ScriptedFaults([(name, f) for f in faults for name in ("get", "get_ranges")])
    store = FaultyStore(inner, script, clock=FakeClock())
    with pytest.raises(ShortReadError):
        await store.get("x")
    with pytest.raises(ShortReadError):
        await store.get_ranges("x", [Range(0, 5)])
    spoiled = [(await store.get("x")).data, *await store.get_ranges("x", [Range(0, 10)])]
    for data in spoiled:
        assert len(data) == 10
        assert bytes(data) != b"0123456789"
    assert bytes((await store.get("x")).data) == b"0123456789"


async def test_a_torn_put_keeps_half_and_calls_it_done() -> None:
    store = FaultyStore(memory(), ScriptedFaults([("put", Fault.TORN_PUT)]), clock=FakeClock())
    await store.put("x", [b"0123", b"4567"])
    assert bytes((await store.get("x")).data) == b"0123"


@pytest.mark.parametrize(
    ("fault", "kept"),
    [
        (Fault.UNAVAILABLE, b"old"),
        (Fault.BROKEN_STREAM, b"old"),
        (Fault.LOST_REPLY, b"0123"),
        (Fault.TORN_PUT, b"01"),
        (Fault.SLOW, b"0123"),
    ],
)
async def test_a_stream_can_fail_before_in_the_middle_and_after(fault: Fault, kept: bytes) -> None:
    inner = memory()
    await inner.put("x", [b"old"])
    store = FaultyStore(inner, ScriptedFaults([("put_stream", fault)]), clock=FakeClock())
    if fault in (Fault.TORN_PUT, Fault.SLOW):
        assert await store.put_stream("x", stream(b"01", b"23")) == len(kept)
    else:
        with pytest.raises(StoreUnavailableError, match="put_stream 'x'"):
            await store.put_stream("x", stream(b"01", b"23"))
    assert bytes((await inner.get("x")).data) == kept


def test_chance_repeats_with_its_seed_and_keeps_to_its_operations() -> None:
    def draw(seed: int) -> list[Fault | None]:
        plan = RandomFaults(seed, {Fault.SLOW: 0.3, Fault.UNAVAILABLE: 0.3}, {"put"})
        return [plan.next("put", "x") for _ in range(200)]

    assert draw(1) == draw(1) != draw(2)
    assert {*draw(1)} == {None, Fault.SLOW, Fault.UNAVAILABLE}
    assert 40 < sum(fault is Fault.SLOW for fault in draw(1)) < 80
    assert RandomFaults(1, {Fault.SLOW: 1.0}, {"put"}).next("get", "x") is None
    assert RandomFaults(1, {Fault.SLOW: 1.0}).next("get", "x") is Fault.SLOW


async def test_creates_survive_a_storm_of_faults() -> None:
    inner = memory()
    chances = {Fault.LOST_REPLY: 0.3, Fault.UNAVAILABLE: 0.3}
    faulty = FaultyStore(inner, RandomFaults(7, chances), clock=FakeClock())
    patient = RetryPolicy(attempts=50, backoff=Backoff(first_s=0.0))
    store = RetryingStore(faulty, clock=FakeClock(), entropy=os.urandom, policy=patient)
    for number in range(200):
        await store.put(f"{number:03}", [b"%d" % number], mode=Create())
    assert [i.key async for i in inner.list("")] == [f"{number:03}" for number in range(200)]
