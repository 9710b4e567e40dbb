"""The recorded counts, which may only fall."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.tidy import code
from tests.tidy.rooms import ROOT
from tests.tidy.words import Counted, count_rooms

FILE = ROOT / "tests" / "tidy" / "ratchet.toml"

_HEAD = """\
# The recorded counts of the tidy test. They may only fall: `python -m tests.tidy lower`.
"""


@dataclass(frozen=True)
class Limit:
    """The most that the prose of one room may count."""

    what: float
    starts: int
    avoided: int

    @classmethod
    def of(cls, counted: Counted) -> "Limit":
        return cls(counted.what_rate, counted.starts, counted.avoided)

    def lowered(self, other: "Limit") -> "Limit":
        return Limit(
            min(self.what, other.what),
            min(self.starts, other.starts),
            min(self.avoided, other.avoided),
        )

    def exceeded_by(self, found: "Limit") -> bool:
        return self.lowered(found) != found


@dataclass(frozen=True)
class Ratchet:
    rooms: Mapping[str, Limit] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)
    functions: Mapping[str, int] = field(default_factory=dict)
    errors: frozenset[str] = frozenset()
    test_imports: frozenset[str] = frozenset()

    def write(self, path: Path = FILE) -> None:
        path.write_text(_HEAD + "".join(self._sections()), encoding="utf-8")

    def _sections(self) -> Iterable[str]:
        yield '\n# "what" per 1,000 words, sentences that begin badly, avoided words.\n[words]\n'
        for room, limit in sorted(self.rooms.items()):
            yield (
                f"{room} = {{ what = {limit.what}, starts = {limit.starts}, "
                f"avoided = {limit.avoided} }}\n"
            )
        yield f"\n# Files of more than {code.MAX_FILE_LINES} lines.\n[files]\n"
        yield from _lengths(self.files)
        yield f"\n# Functions of more than {code.MAX_FUNCTION_LINES} lines.\n[functions]\n"
        yield from _lengths(self.functions)
        yield "\n[errors]\n# Error classes that stand outside an errors.py.\n"
        yield from _names("classes", self.errors)
        yield "\n[imports]\n# Files that import from a test module.\n"
        yield from _names("of_tests", self.test_imports)


def _lengths(lengths: Mapping[str, int]) -> Iterable[str]:
    for name, lines in sorted(lengths.items()):
        yield f'"{name}" = {lines}\n'


def _names(key: str, names: Iterable[str]) -> Iterable[str]:
    yield f"{key} = [\n"
    for name in sorted(names):
        yield f'    "{name}",\n'
    yield "]\n"


def load(path: Path = FILE) -> Ratchet:
    stored = tomllib.loads(path.read_text(encoding="utf-8"))
    return Ratchet(
        rooms={room: Limit(**limits) for room, limits in stored["words"].items()},
        files=stored["files"],
        functions=stored["functions"],
        errors=frozenset(stored["errors"]["classes"]),
        test_imports=frozenset(stored["imports"]["of_tests"]),
    )


def measure(root: Path = ROOT) -> Ratchet:
    """Count the tree as it is."""
    return Ratchet(
        rooms={room: Limit.of(counted) for room, counted in count_rooms(root).items()},
        files=code.long_files(root),
        functions=code.long_functions(root),
        errors=frozenset(code.misplaced_errors(root)),
        test_imports=frozenset(code.imports_of_tests(root)),
    )


def lowered(recorded: Ratchet, found: Ratchet, only: str | None = None) -> Ratchet:
    """Lower the recorded counts to the present ones, of all rooms or of one alone.

    Rooms that are gone leave the list, and new ones join it. Lists of exceptions only shrink.
    """
    return Ratchet(
        rooms={
            room: _limit(recorded.rooms.get(room), limit, touch=only in (None, room))
            for room, limit in found.rooms.items()
        },
        files=_shrunk(recorded.files, found.files),
        functions=_shrunk(recorded.functions, found.functions),
        errors=recorded.errors & found.errors,
        test_imports=recorded.test_imports & found.test_imports,
    )


def _limit(recorded: Limit | None, found: Limit, *, touch: bool) -> Limit:
    if recorded is None:
        return found
    return recorded.lowered(found) if touch else recorded


def _shrunk(recorded: Mapping[str, int], found: Mapping[str, int]) -> dict[str, int]:
    return {name: min(lines, found[name]) for name, lines in recorded.items() if name in found}
