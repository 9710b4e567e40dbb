"""Patterns that are made to take long do not hold up the event loop."""

import asyncio

from stratalog.clock import SystemClock
from stratalog.groups.consumer.pattern import TopicPattern
from stratalog.groups.consumer.pattern_matches import _SLICE_STATES, PatternMatches

HOSTILE = "(a?b?c?){300}x"
"""Nearly all of its states hold after every character."""
NAMES = [f"topic-{number}" for number in range(300)]


class TurningClock(SystemClock):
    """Sleeps for one turn of the loop, and counts."""

    def __init__(self) -> None:
        self.sleeps = 0

    async def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        await asyncio.sleep(0)


async def test_matches_are_the_names_that_a_pattern_fits() -> None:
    clock = TurningClock()
    matches = PatternMatches(clock)
    found = await matches.of({"topic-1.*", "nothing"}, NAMES)
    assert found["topic-1.*"] == {name for name in NAMES if name.startswith("topic-1")}
    assert found["nothing"] == frozenset()


async def test_a_hostile_pattern_visits_few_states_between_two_turns_of_the_loop() -> None:
    name = "ab" * 100
    visited = list(TopicPattern(HOSTILE).run(name))
    clock = TurningClock()
    await PatternMatches(clock).of({HOSTILE}, [name])
    assert max(visited) < 4000
    assert sum(visited) > 100_000
    assert clock.sleeps >= sum(visited) // (_SLICE_STATES + 4000)


async def test_other_patterns_get_their_turn_while_a_hostile_one_works() -> None:
    clock = TurningClock()
    matches = PatternMatches(clock)
    names = [f"{'ab' * 80}{'ba' * number}" for number in range(40)]
    hostile = asyncio.create_task(matches.of({HOSTILE}, names))
    await asyncio.sleep(0)
    honest = await matches.of({"topic.*"}, NAMES)
    assert len(honest["topic.*"]) == 300
    assert not hostile.done()
    await hostile


async def test_new_topics_alone_are_matched_when_the_rest_is_known() -> None:
    clock = TurningClock()
    matches = PatternMatches(clock)
    names = ["ab" * 100]
    await matches.of({HOSTILE}, names)
    slept = clock.sleeps
    await matches.of({HOSTILE}, names)
    assert clock.sleeps == slept
