"""Regular expressions in RE2's syntax, parsed into a tree.

The tree decides only whether a whole topic name matches: groups do not capture, and lazy repetition
is the same as greedy repetition. Look-around and back references are not part of RE2. Word
boundaries and Unicode classes are, but they are refused, too, because topic names are ASCII.
"""

import re
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from stratalog.groups.consumer.errors import InvalidPatternError

LONGEST = 1024
_DEEPEST = 50
_MOST_REPEATS = 1000
"""RE2's own bound."""

_ASCII = frozenset(map(chr, range(128)))
_DIGITS = frozenset("0123456789")
_UPPER = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LOWER = frozenset("abcdefghijklmnopqrstuvwxyz")
_ALNUM = _DIGITS | _UPPER | _LOWER
_SPACE = frozenset("\t\n\f\r ")
_WORD = _ALNUM | {"_"}
_PUNCT = frozenset(each for each in _ASCII if each.isprintable()) - _ALNUM - {" "}
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_POSIX = {
    "alnum": _ALNUM,
    "alpha": _UPPER | _LOWER,
    "ascii": _ASCII,
    "blank": frozenset(" \t"),
    "cntrl": frozenset(each for each in _ASCII if not each.isprintable()),
    "digit": _DIGITS,
    "graph": _ALNUM | _PUNCT,
    "lower": _LOWER,
    "print": _ALNUM | _PUNCT | {" "},
    "punct": _PUNCT,
    "space": _SPACE | {"\v"},
    "upper": _UPPER,
    "word": _WORD,
    "xdigit": frozenset("0123456789abcdefABCDEF"),
}
_COUNTS = re.compile(r"\{(\d{1,9})(?:(,)(\d{1,9})?)?\}")
_FLAGS = re.compile(r"\(\?(?:P?<\w+>|([imsU]*)(?:-([imsU]+))?([:)]))")
_HEX = re.compile(r"x(?:([0-9a-fA-F]{2})|\{([0-9a-fA-F]{1,6})\})")


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of these."""

    chars: frozenset[str]


@dataclass(frozen=True, slots=True)
class Start:
    pass


@dataclass(frozen=True, slots=True)
class End:
    pass


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    ways: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    part: "Node"
    least: int
    most: int | None


Node: TypeAlias = Chars | Start | End | Sequence | Choice | Repeat


def parse_pattern(text: str) -> Node:
    if len(text) > LONGEST:
        raise InvalidPatternError(
            f"a topic pattern has {LONGEST} characters at the most, not {len(text)}"
        )
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._folds = False
        """True while letters stand for both cases."""

    def whole(self) -> Node:
        tree = self._choice()
        if self._at < len(self._text):
            self._fail("a ')' without its '('")
        return tree

    def _choice(self) -> Node:
        ways = [self._sequence()]
        while self._takes("|"):
            ways.append(self._sequence())
        return ways[0] if len(ways) == 1 else Choice(tuple(ways))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if self._takes("\\Q"):
                parts += self._quoted()
            elif (part := self._atom()) is not None:
                parts.append(self._repeated(part))
        return Sequence(tuple(parts))

    def _quoted(self) -> list[Node]:
        end = self._text.find("\\E", self._at)
        quoted = self._text[self._at : end if end >= 0 else None]
        self._at += len(quoted) + (2 if end >= 0 else 0)
        return [self._literal(each) for each in quoted]

    def _repeated(self, part: Node) -> Node:
        counts = self._counts()
        if counts is None:
            return part
        self._takes("?")
        if self._counts() is not None:
            self._fail("a repetition of a repetition")
        least, most = counts
        if max(least, most or 0) > _MOST_REPEATS or (most is not None and most < least):
            self._fail(
                "a repetition that is too often, or less often at the most than at the least"
            )
        return Repeat(part, least, most)

    def _counts(self) -> tuple[int, int | None] | None:
        for sign, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._takes(sign):
                return counts
        found = _COUNTS.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        least = int(found[1])
        if found[2] is None:
            return least, least
        return least, None if found[3] is None else int(found[3])

    def _atom(self) -> Node | None:
        """Parse one atom. None for flags, which match nothing by themselves."""
        if self._counts() is not None:
            self._fail("a repetition of nothing")
        match char := self._next():
            case "(":
                return self._group()
            case "[":
                return self._set()
            case ".":
                return Chars(_ASCII - {"\n"})
            case "^":
                return Start()
            case "$":
                return End()
            case "\\":
                return self._escape()
        return self._literal(char)

    def _group(self) -> Node | None:
        folds = self._folds
        if self._text.startswith("?", self._at) and not self._group_flags():
            return None
        self._depth += 1
        if self._depth > _DEEPEST:
            self._fail(f"groups nested deeper than {_DEEPEST}")
        tree = self._choice()
        if not self._takes(")"):
            self._fail("a '(' without its ')'")
        self._depth -= 1
        self._folds = folds
        return tree

    def _group_flags(self) -> bool:
        """Parse the flags after "(?". Return whether a group follows them."""
        found = _FLAGS.match(self._text, self._at - 1)
        if found is None:
            self._fail("a group of a kind that RE2 does not have")
        self._at = found.end()
        if "i" in (found[1] or ""):
            self._folds = True
        if "i" in (found[2] or ""):
            self._folds = False
        return found[3] != ")"

    def _escape(self) -> Node:
        if self._takes("A"):
            return Start()
        if self._takes("z"):
            return End()
        return self._folded(self._escaped_chars())

    def _escaped_chars(self) -> frozenset[str]:
        found = _HEX.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
            code = int(found[1] or found[2], 16)
            return frozenset(chr(code)) if code <= 0x10FFFF else self._fail("no such character")
        char = self._next()
        if char in _CLASSES:
            return _CLASSES[char]
        if char.lower() in _CLASSES:
            return _ASCII - _CLASSES[char.lower()]
        if char in _CONTROLS:
            return frozenset(_CONTROLS[char])
        if char in _ALNUM:
            self._fail(f"the escape \\{char}")
        return frozenset(char)

    def _set(self) -> Node:
        negated = self._takes("^")
        chars: frozenset[str] = frozenset()
        first = True
        while first or not self._takes("]"):
            chars |= self._set_member()
            first = False
        folded = self._folded(chars)
        return Chars(_ASCII - folded.chars) if negated else folded

    def _set_member(self) -> frozenset[str]:
        if self._takes("[:"):
            return self._posix()
        low = self._set_char()
        ranged = self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at)
        if not ranged or len(low) > 1:
            return low
        self._at += 1
        high = self._set_char()
        if len(high) > 1 or min(high) < min(low):
            self._fail("a range that ends before it begins")
        # Topic names are ASCII, so that a range need not go on beyond it.
        return frozenset(map(chr, range(ord(min(low)), min(ord(min(high)), 127) + 1))) | high

    def _set_char(self) -> frozenset[str]:
        char = self._next()
        return self._escaped_chars() if char == "\\" else frozenset(char)

    def _posix(self) -> frozenset[str]:
        end = self._text.find(":]", self._at)
        name = self._text[self._at : max(end, self._at)]
        chars = _POSIX.get(name.removeprefix("^"))
        if chars is None:
            self._fail("a class of characters that is not known")
        self._at = end + 2
        return _ASCII - chars if name.startswith("^") else chars

    def _literal(self, char: str) -> Node:
        return self._folded(frozenset(char))

    def _folded(self, chars: frozenset[str]) -> Chars:
        if not self._folds:
            return Chars(chars)
        return Chars(chars.union(*((each.lower(), each.upper()) for each in chars)))

    def _next(self) -> str:
        if self._at == len(self._text):
            self._fail("an end too early")
        self._at += 1
        return self._text[self._at - 1]

    def _takes(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _fail(self, mistake: str) -> NoReturn:
        raise InvalidPatternError(
            f"topic pattern {self._text!r} has {mistake}, at character {self._at}: "
            "the syntax is that of RE2"
        )
