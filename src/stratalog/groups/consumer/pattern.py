"""A pattern of topic names, matched in time that grows with the name alone.

The standard library's matcher tries ways one after the other, which a pattern of ten characters
can make last for years. A group member chooses its pattern, so all ways are followed at once here
(Thompson's construction), and where a set of ways leads is remembered.
"""

from collections.abc import Iterable
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

_MOST_PLACES = 2000
"""How large a pattern may get when its repetitions are written out."""
_MOST_REMEMBERED = 10_000


@dataclass(slots=True)
class _Place:
    """A point inside a pattern. Without characters and anchor, one passes freely."""

    following: list[int] = field(default_factory=list)
    chars: frozenset[str] | None = None
    anchor: Start | End | None = None


class _Builder:
    """Builds places from the end to the beginning: each part is given where it leads to."""

    def __init__(self) -> None:
        self.places: list[_Place] = [_Place()]

    def add(self, place: _Place) -> int:
        if len(self.places) >= _MOST_PLACES:
            raise InvalidPatternError("the topic pattern is too large: repeat less in it")
        self.places.append(place)
        return len(self.places) - 1

    def build(self, node: Node, following: int) -> int:
        match node:
            case Chars(chars):
                return self.add(_Place([following], chars=chars))
            case Start() | End():
                return self.add(_Place([following], anchor=node))
            case Sequence(parts):
                for part in reversed(parts):
                    following = self.build(part, following)
                return following
            case Choice(ways):
                return self.add(_Place([self.build(way, following) for way in ways]))
            case Repeat():
                return self._build_repeat(node, following)
        assert_never(node)

    def _build_repeat(self, node: Repeat, following: int) -> int:
        if node.most is None:
            loop = self.add(_Place([following]))
            self.places[loop].following.append(self.build(node.part, loop))
            following = loop
        else:
            after = following
            for _ in range(node.most - node.least):
                following = self.add(_Place([after, self.build(node.part, following)]))
        for _ in range(node.least):
            following = self.build(node.part, following)
        return following


_GOAL = 0
_Ways = frozenset[int]


class TopicPattern:
    def __init__(self, text: str) -> None:
        builder = _Builder()
        self.text = text
        first = builder.build(parse_pattern(text), _GOAL)
        self._places = builder.places
        self._first = self._reached([first], Start)
        self._steps: dict[tuple[_Ways, str], _Ways] = {}
        self._verdicts: dict[str, bool] = {}

    def matches(self, name: str) -> bool:
        """Whether the pattern fits the whole name."""
        verdict = self._verdicts.get(name)
        if verdict is None:
            if len(self._verdicts) >= _MOST_REMEMBERED:
                self._verdicts.clear()
            verdict = self._verdicts[name] = self._fits(name)
        return verdict

    def _fits(self, name: str) -> bool:
        ways = self._first
        for char in name:
            ways = self._step(ways, char)
            if not ways:
                return False
        # An empty name ends where it starts.
        anchors = (End,) if name else (Start, End)
        return _GOAL in self._reached(ways, *anchors)

    def _step(self, ways: _Ways, char: str) -> _Ways:
        known = self._steps.get((ways, char))
        if known is None:
            if len(self._steps) >= _MOST_REMEMBERED:
                self._steps.clear()
            known = self._steps[ways, char] = self._reached(
                following
                for way in ways
                if char in (self._places[way].chars or ())
                for following in self._places[way].following
            )
        return known

    def _reached(self, ways: Iterable[int], *anchors: type[Start] | type[End]) -> _Ways:
        """All places that can be passed to freely, or through these anchors."""
        reached = set(ways)
        waiting = list(reached)
        while waiting:
            place = self._places[waiting.pop()]
            holds = place.anchor is None or isinstance(place.anchor, anchors)
            if place.chars is None and holds:
                fresh = [each for each in place.following if each not in reached]
                reached.update(fresh)
                waiting += fresh
        return frozenset(reached)
