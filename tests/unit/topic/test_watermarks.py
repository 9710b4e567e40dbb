import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack
from uuid import UUID

import pytest
from tests.support.ledgers import FakeControlPlane
from tests.unit.block.rig import TellingClock

from stratalog.control.errors import ControlUnavailableError
from stratalog.control.log.model import PartitionState, WriteTier
from stratalog.ids import LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition
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
        self.during_poll: list[Callable[[], None]] = []

    async def log_high_watermarks(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Offset]:
        self._ask(list(wanted))
        return {key: self.marks[key] for key in wanted if key in self.marks}

    async def log_moved(self, known: Sequence[PartitionState]) -> list[TopicPartition]:
        self._ask([one.topic_partition for one in known])
        moved = [
            one.topic_partition
            for one in known
            if self.marks.get(one.topic_partition) != one.high_watermark
        ]
        for step in self.during_poll:
            step()
        return moved

    def _ask(self, wanted: list[TopicPartition]) -> None:
        self.asked.append(wanted)
        if self.failures:
            raise self.failures.pop(0)


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


def state(
    partition: TopicPartition, high_watermark: int, *, log_start: int = 0, epoch: int = 0
) -> PartitionState:
    return PartitionState(
        **partition._asdict(),
        log_start=Offset(log_start),
        remote_end=Offset(0),
        block_start=Offset(0),
        block_end=Offset(high_watermark),
        high_watermark=Offset(high_watermark),
        last_stable=Offset(high_watermark),
        write_tier=WriteTier.BLOCK,
        leader_epoch=LeaderEpoch(epoch),
        size_bytes=0,
        last_commit_ms=0,
    )


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
        watermarks.seen(state(P0, 5))
        watermarks.advanced({P0: high(told)})
        assert await watch.grown(PATIENCE_S if woken else 0) is woken


async def test_what_one_reader_saw_does_not_keep_another_asleep_for_ever(
    watermarks: Watermarks,
) -> None:
    """The other one registered before it looked, so that it sees the same by itself."""
    with watermarks.watch([P0]) as early, watermarks.watch([P0]):
        watermarks.advanced({P0: high(5)})
        watermarks.seen(state(P0, 5))
        assert await early.grown(PATIENCE_S)


async def test_a_lost_hint_is_made_good_by_the_poll(
    watermarks: Watermarks, heads: Heads, clock: TellingClock
) -> None:
    with watermarks.watch([P0, P1]) as watch:
        watermarks.seen(state(P0, 3))
        heads.marks[P0] = high(4)
        assert await clock.pass_nap() == 1.0
        assert await watch.grown(PATIENCE_S)
        assert P0 in watch.rest()
    assert heads.asked == [[P0]]


async def test_a_hint_wakes_if_the_partition_has_grown(
    watermarks: Watermarks, heads: Heads
) -> None:
    heads.marks[P0] = high(5)
    with watermarks.watch([P0]) as watch:
        watermarks.seen(state(P0, 4))
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
        watermarks.seen(state(P0, 5))
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
        watermarks.seen(state(P0, 5))
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
        watermarks.seen(state(P0, 3))
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


# The known state.


async def test_a_state_is_known_until_the_partition_grows(watermarks: Watermarks) -> None:
    with watermarks.watch([P0]):
        assert watermarks.known(P0) is None
        watermarks.seen(state(P0, 5))
        assert watermarks.known(P0) == state(P0, 5)
        watermarks.advanced({P0: high(6)})
        assert watermarks.known(P0) is None


@pytest.mark.parametrize(("seen", "is_known"), [(6, False), (7, True), (8, True)])
async def test_a_look_from_before_a_commit_is_not_taken_for_the_state_after_it(
    watermarks: Watermarks, seen: int, is_known: bool
) -> None:
    with watermarks.watch([P0]):
        watermarks.advanced({P0: high(7)})
        watermarks.seen(state(P0, seen))
        assert (watermarks.known(P0) is not None) is is_known


async def test_an_older_state_does_not_replace_a_newer_one(watermarks: Watermarks) -> None:
    with watermarks.watch([P0]) as watch:
        watermarks.seen(state(P0, 5, log_start=2))
        watermarks.seen(state(P0, 4, log_start=2))
        watermarks.seen(state(P0, 5, log_start=1))
        assert watermarks.known(P0) == state(P0, 5, log_start=2)
        assert not await watch.grown(0)


@pytest.mark.parametrize("newer", [state(P0, 6), state(P0, 5, log_start=1), state(P0, 5, epoch=1)])
async def test_news_that_one_reader_finds_wake_the_others(
    watermarks: Watermarks, newer: PartitionState
) -> None:
    """The poll would compare with the newer state and find no difference."""
    with watermarks.watch([P0, P1]) as asleep, watermarks.watch([P0]):
        watermarks.seen(state(P0, 5))
        asleep.rest()
        watermarks.seen(newer)
        assert await asleep.grown(PATIENCE_S)
        assert list(asleep.rest()) == [P0]
        assert watermarks.known(P0) == newer


async def test_a_state_outlives_its_last_watch_by_one_poll(
    watermarks: Watermarks, heads: Heads, clock: TellingClock
) -> None:
    heads.marks[P0] = high(5)
    with watermarks.watch([P0]):
        watermarks.seen(state(P0, 5))
    await clock.pass_nap()
    await clock.pass_nap()
    assert heads.asked == [[P0]]
    with watermarks.watch([P0]):
        assert watermarks.known(P0) is None


async def test_a_reader_that_comes_back_in_time_finds_the_state(
    watermarks: Watermarks, heads: Heads, clock: TellingClock
) -> None:
    heads.marks[P0] = high(5)
    with watermarks.watch([P0]):
        watermarks.seen(state(P0, 5))
    for _ in range(5):
        await clock.pass_nap()
        with watermarks.watch([P0]):
            assert watermarks.known(P0) == state(P0, 5)


async def test_a_partition_that_went_back_or_away_is_not_known(
    watermarks: Watermarks, heads: Heads, clock: TellingClock
) -> None:
    heads.marks[P0] = high(4)
    with watermarks.watch([P0, P1]) as watch:
        watermarks.seen(state(P0, 5))
        watermarks.seen(state(P1, 5))
        await clock.pass_nap()
        assert await watch.grown(PATIENCE_S)
        await clock.next_nap()
        assert sorted(watch.rest()) == [P0, P1]
        assert (watermarks.known(P0), watermarks.known(P1)) == (None, None)


async def test_the_answer_to_a_poll_does_not_undo_newer_knowledge(
    watermarks: Watermarks, heads: Heads, clock: TellingClock
) -> None:
    """The poll finds that offset 5 was not the end; a reader has found the end meanwhile."""
    heads.marks[P0] = high(6)
    with watermarks.watch([P0]):
        watermarks.seen(state(P0, 5))
        heads.during_poll.append(lambda: watermarks.seen(state(P0, 6)))
        await clock.pass_nap()
        await clock.next_nap()
        assert watermarks.known(P0) == state(P0, 6)


async def test_nothing_is_known_after_a_poll_that_failed(
    watermarks: Watermarks, heads: Heads, clock: TellingClock
) -> None:
    """Else readers would not notice that the control plane is away."""
    heads.failures.append(ControlUnavailableError("away"))
    with watermarks.watch([P0]) as watch:
        watermarks.seen(state(P0, 5))
        await clock.pass_nap()
        await clock.next_nap()
        assert watermarks.known(P0) is None
        await clock.advance(1)
        assert await watch.grown(PATIENCE_S)


async def test_a_watch_takes_partitions_on_and_lets_them_go(watermarks: Watermarks) -> None:
    with watermarks.watch([P0]) as watch:
        watch.add(P1)
        watermarks.advanced({P0: high(1)})
        watch.remove(P0)
        watermarks.advanced({P0: high(2), P1: high(1), P2: high(1)})
        assert list(watch.rest()) == [P1]


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
