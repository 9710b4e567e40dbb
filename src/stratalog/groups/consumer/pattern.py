"""A pattern of topic names, matched in time that grows only with the length of the name.

The standard library's matcher tries alternatives one after the other, and a pattern of ten
characters can make that last for years. Patterns come from group members. So this matcher follows
all alternatives at once (Thompson's construction), and caches the steps from one set of states to
the next. A name of 249 characters may still take 0.3 s: the event loop runs a pattern in steps
(`pattern_matches`).
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import assert_never

from stratalog.groups.consumer.errors import InvalidPatternError
from stratalog.groups.consumer.pattern_syntax import (
    Chars,
    Choice,
    End,
    Node,
    Repeat,
    Sequence,
    Start,
    parse_pattern,
)

_MOST_STATES = 2000
"""The most states that a pattern may have when its repetitions are written out."""
_MOST_CACHED = 20_000
"""The most states in the cached steps of a pattern, which take a megabyte."""

_CACHED_PER_STATE = 8
"""Cached steps that take the time of visiting one state."""


@dataclass(slots=True)
class _State:
    """A state of the automaton. Without characters and anchor, it is passed without input."""

    following: list[int] = field(default_factory=list)
    chars: frozenset[str] | None = None
    anchor: Start | End | None = None


class _Builder:
    """Builds states from the end to the beginning: each part gets the state that follows it."""

    def __init__(self) -> None:
        self.states: list[_State] = [_State()]

    def add(self, state: _State) -> int:
        if len(self.states) >= _MOST_STATES:
            raise InvalidPatternError("the topic pattern is too large: repeat less in it")
        self.states.append(state)
        return len(self.states) - 1

    def build(self, node: Node, following: int) -> int:
        match node:
            case Chars(chars):
                return self.add(_State([following], chars=chars))
            case Start() | End():
                return self.add(_State([following], anchor=node))
            case Sequence(parts):
                for part in reversed(parts):
                    following = self.build(part, following)
                return following
            case Choice(ways):
                return self.add(_State([self.build(way, following) for way in ways]))
            case Repeat():
                return self._build_repeat(node, following)
        assert_never(node)

    def _build_repeat(self, node: Repeat, following: int) -> int:
        if node.most is None:
            loop = self.add(_State([following]))
            self.states[loop].following.append(self.build(node.part, loop))
            following = loop
        else:
            after = following
            for _ in range(node.most - node.least):
                following = self.add(_State([after, self.build(node.part, following)]))
        for _ in range(node.least):
            following = self.build(node.part, following)
        return following


_GOAL = 0
_States = frozenset[int]


class TopicPattern:
    def __init__(self, text: str) -> None:
        builder = _Builder()
        self.text = text
        first = builder.build(parse_pattern(text), _GOAL)
        self._states = builder.states
        self._first = self._reached([first], Start)
        self._steps: dict[tuple[_States, str], _States] = {}
        self._cached = 0

    def matches(self, name: str) -> bool:
        """Return whether the pattern matches the whole name."""
        run = self.run(name)
        while True:
            try:
                next(run)
            except StopIteration as end:
                return bool(end.value)

    def run(self, name: str) -> Generator[int, None, bool]:
        """Match the whole name in steps. Each step yields the number of states that it visited."""
        states = self._first
        for char in name:
            known = self._steps.get((states, char))
            if known is None:
                known = self._step(states, char)
                yield len(states) + len(known)
            states = known
            if not states:
                return False
        yield len(name) // _CACHED_PER_STATE + 1
        # An empty name ends where it starts.
        anchors = (End,) if name else (Start, End)
        return _GOAL in self._reached(states, *anchors)

    def _step(self, states: _States, char: str) -> _States:
        following = self._reached(
            following
            for at in states
            if char in (self._states[at].chars or ())
            for following in self._states[at].following
        )
        self._cached += len(following) + 1
        if self._cached > _MOST_CACHED:
            self._steps.clear()
            self._cached = len(following) + 1
        self._steps[states, char] = following
        return following

    def _reached(self, states: Iterable[int], *anchors: type[Start] | type[End]) -> _States:
        """Return all states that can be reached without input, or through these anchors."""
        reached = set(states)
        waiting = list(reached)
        while waiting:
            state = self._states[waiting.pop()]
            holds = state.anchor is None or isinstance(state.anchor, anchors)
            if state.chars is None and holds:
                fresh = [each for each in state.following if each not in reached]
                reached.update(fresh)
                waiting += fresh
        return frozenset(reached)
