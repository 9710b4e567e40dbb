import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from uuid import UUID

import pytest
from tests.support.ledgers import FakeControlPlane
from tests.unit.block.rig import TellingClock

from stratalog.control.errors import ControlUnavailableError
from stratalog.ids import Offset, PartitionIndex, TopicId, TopicPartition
from stratalog.topic.watermarks import Watermarks

P0, P1, P2 = (TopicPartition(TopicId(UUID(int=1)), PartitionIndex(i)) for i in range(3))
PATIENCE_S = 20.0


class Heads(FakeControlPlane):
    """A control plane that knows high watermarks only."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: dict[TopicPartition, Offset] = {}
        self.asked: list[list[TopicPartition]] = []
        self.failures: list[Exception] = []

    async def log_high_watermarks(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Offset]:
        self.asked.append(list(wanted))
        if self.failures:
            raise self.failures.pop(0)
        return {key: self.marks[key] for key in wanted if key in self.marks}


@pytest.fixture
def heads() -> Heads:
    return Heads()


@pytest.fixture
def clock() -> TellingClock:
    return TellingClock()


@pytest.fixture
async def watermarks(heads: Heads, clock: TellingClock) -> AsyncIterator[Watermarks]:
    watermarks = Watermarks(control=heads, clock=clock, poll_ms=1000)
    yield watermarks
    await watermarks.close()


def high(offset: int) -> Offset:
    return Offset(offset)


async def test_only_the_watches_of_a_partition_that_grew_are_woken(watermarks: Watermarks) -> None:
    with (
        watermarks.watch([P0, P1]) as both,
        watermarks.watch([P1]) as one,
        watermarks.watch([P2]) as other,
    ):
        watermarks.advanced({P1: high(1)})
        assert await both.grown(PATIENCE_S)
        assert await one.grown(PATIENCE_S)
        assert not await other.grown(0)


async def test_a_watch_is_woken_by_growth_since_it_rested_only(watermarks: Watermarks) -> None:
    with watermarks.watch([P0]) as watch:
        watermarks.advanced({P0: high(1)})
        watch.rest()
        assert not await watch.grown(0)
        watermarks.advanced({P0: high(2)})
        assert await watch.grown(PATIENCE_S)


@pytest.mark.parametrize(("told", "woken"), [(4, False), (5, False), (6, True)])
async def test_old_news_wake_nobody(watermarks: Watermarks, told: int, woken: bool) -> None:
    with watermarks.watch([P0]) as watch:
        watermarks.seen(P0, high(5))
        watermarks.advanced({P0: high(told)})
        assert await watch.grown(PATIENCE_S if woken else 0) is woken


async def test_what_one_reader_saw_does_not_keep_another_asleep_for_ever(
    watermarks: Watermarks,
) -> None:
    """The other one registered before it looked, so that it sees the same by itself."""
    with watermarks.watch([P0]) as early, watermarks.watch([P0]):
        watermarks.advanced({P0: high(5)})
        watermarks.seen(P0, high(5))
        assert await early.grown(PATIENCE_S)


async def test_a_lost_hint_is_made_good_by_the_poll(
    watermarks: Watermarks, heads: Heads, clock: TellingClock
) -> None:
    with watermarks.watch([P0, P1]) as watch:
        watermarks.seen(P0, high(3))
        heads.marks[P0] = high(4)
        assert await clock.pass_nap() == 1.0
        assert await watch.grown(PATIENCE_S)
    assert sorted(heads.asked[0]) == [P0, P1]


async def test_a_hint_wakes_if_the_partition_has_grown(
    watermarks: Watermarks, heads: Heads
) -> None:
    heads.marks[P0] = high(5)
    with watermarks.watch([P0]) as watch:
        watermarks.seen(P0, high(4))
        watermarks.hinted({P0: high(1 << 62)})
        assert await watch.grown(PATIENCE_S)
        watch.rest()
        heads.marks[P0] = high(6)
        watermarks.hinted({P0: high(6)})
        assert await watch.grown(PATIENCE_S)


async def test_a_hint_of_no_news_costs_one_look_for_all_readers_and_wakes_none(
    watermarks: Watermarks, heads: Heads
) -> None:
    heads.marks[P0] = high(5)
    with ExitStack() as stack:
        watches = [stack.enter_context(watermarks.watch([P0])) for _ in range(50)]
        watermarks.seen(P0, high(5))
        for told in range(6, 1000):
            watermarks.hinted({P0: high(told), P1: high(told)})
        await settle()
        assert not any([await watch.grown(0) for watch in watches])
    assert heads.asked == [[P0]]


async def test_hints_during_a_look_share_the_next_one(watermarks: Watermarks, heads: Heads) -> None:
    with watermarks.watch([P0]), watermarks.watch([P1]) as other:
        heads.marks[P1] = high(3)
        watermarks.hinted({P0: high(1)})
        await asyncio.sleep(0)
        watermarks.hinted({P1: high(3)})
        watermarks.hinted({P0: high(2)})
        assert await other.grown(PATIENCE_S)
    assert len(heads.asked) == 2


async def test_a_look_that_fails_does_not_end_the_looks(
    watermarks: Watermarks, heads: Heads
) -> None:
    heads.marks[P0] = high(5)
    heads.failures.append(ControlUnavailableError("away"))
    with watermarks.watch([P0]) as watch:
        watermarks.hinted({P0: high(5)})
        await settle()
        watermarks.hinted({P0: high(5)})
        assert await watch.grown(PATIENCE_S)


@pytest.mark.parametrize("told", [4, 5])
async def test_a_hint_of_what_is_known_costs_nothing(
    watermarks: Watermarks, heads: Heads, told: int
) -> None:
    with watermarks.watch([P0]):
        watermarks.seen(P0, high(5))
        watermarks.hinted({P0: high(told), P1: high(told)})
        await settle()
    assert heads.asked == []


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_poll_that_finds_nothing_new_wakes_nobody(
    watermarks: Watermarks, heads: Heads, clock: TellingClock
) -> None:
    with watermarks.watch([P0]) as watch:
        watermarks.seen(P0, high(3))
        heads.marks[P0] = high(3)
        await clock.pass_nap()
        await clock.next_nap()
        assert not await watch.grown(0)


@pytest.mark.parametrize("failure", [ControlUnavailableError("away"), ZeroDivisionError("ours")])
async def test_a_poll_that_fails_is_not_the_last(
    watermarks: Watermarks, heads: Heads, clock: TellingClock, failure: Exception
) -> None:
    heads.failures.append(failure)
    heads.marks[P0] = high(1)
    with watermarks.watch([P0]) as watch:
        await clock.pass_nap()
        await clock.pass_nap()
        assert await watch.grown(PATIENCE_S)


async def test_nothing_is_polled_while_nobody_watches(
    watermarks: Watermarks, heads: Heads, clock: TellingClock
) -> None:
    with watermarks.watch([P0]):
        pass
    await clock.pass_nap()
    await clock.next_nap()
    assert heads.asked == []


async def test_a_partition_that_is_named_twice_is_watched_once(watermarks: Watermarks) -> None:
    with watermarks.watch([P0, P0]) as watch:
        watermarks.advanced({P0: high(1)})
        assert await watch.grown(PATIENCE_S)


async def test_all_are_woken_when_the_broker_stops(watermarks: Watermarks) -> None:
    with watermarks.watch([P0]) as one, watermarks.watch([P1]) as other:
        watermarks.wake_all()
        assert await one.grown(PATIENCE_S)
        assert await other.grown(PATIENCE_S)
