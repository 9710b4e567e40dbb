"""The topics that patterns match, worked out in slices.

Patterns come from clients, and the longest one takes a millisecond for each character of
a name. If a heartbeat did that for every topic at once, the event loop would stand still for
seconds. So the work of all patterns together gets one slice at a time, with a pause after it: a
fifth of the loop at the most. Patterns as people write them are done within their first slice.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping

from stratalog.clock import Clock
from stratalog.groups.consumer.pattern import TopicPattern
from stratalog.groups.consumer.subscriptions import compiled

_SLICE_STATES = 2000
"""States of automata that are visited in one slice, which takes about a millisecond. One step of
the largest patterns visits twice as many."""
_PAUSE_S = 0.004
_MOST_KNOWN = 500_000
"""Answers that are kept, of all patterns together. They take 50 MB."""

Matches = Mapping[str, frozenset[str]]
"""The names that match, by the text of the pattern."""


class PatternMatches:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: OrderedDict[str, dict[str, bool]] = OrderedDict()
        self._visited = 0
        self._turn = asyncio.Lock()
        """Fair: patterns that take many slices get them in turn."""

    async def of(self, patterns: Iterable[str], names: Collection[str]) -> Matches:
        return {text: await self._matching(text, names) for text in patterns}

    async def _matching(self, text: str, names: Collection[str]) -> frozenset[str]:
        pattern, known = compiled(text), self._known_of(text, len(names))
        for name in names:
            if name not in known:
                known[name] = await self._decide(pattern, name)
        return frozenset(name for name in names if known[name])

    def _known_of(self, text: str, name_count: int) -> dict[str, bool]:
        known = self._known.get(text)
        if known is None or len(known) > 2 * name_count:
            # Most of these topics are gone. An earlier call may still fill the old answers.
            known = self._known[text] = {}
        self._known.move_to_end(text)
        while len(self._known) > 1 and sum(map(len, self._known.values())) > _MOST_KNOWN:
            self._known.popitem(last=False)
        return known

    async def _decide(self, pattern: TopicPattern, name: str) -> bool:
        run = pattern.run(name)
        while True:
            try:
                self._visited += next(run)
            except StopIteration as end:
                return bool(end.value)
            if self._visited >= _SLICE_STATES:
                self._visited = 0
                async with self._turn:
                    await self._clock.sleep(_PAUSE_S)
