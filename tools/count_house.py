"""Counts the shape of a tree, for the table of docs/design/the-house.md.

Run: python -m tools.count_house [folder of another tree]
"""

import ast
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.tidy.words import Counted, count_files
from tools.rooms import ROOT

LARGE_CLASS = 25


@dataclass(frozen=True)
class House:
    rooms: dict[str, int]
    """Python files by room."""
    lines: int
    functions: list[int]
    """The lines of every function."""
    any_count: int
    cast_count: int
    test_casts: int
    interfaces: dict[str, int]
    """Public methods of every class that has many, inherited ones included."""
    prose: Counted


def count(root: Path) -> House:
    source, tests = root / "src" / "stratalog", root / "tests"
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in source.rglob("*.py")}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    test_nodes = (
        node
        for path in tests.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )
    prose = (counted for path, counted in count_files(root).items() if path.is_relative_to("src"))
    return House(
        rooms=_files(source),
        lines=sum(len(path.read_text(encoding="utf-8").splitlines()) for path in trees),
        functions=[_length(node) for node in nodes if _is_function(node)],
        any_count=sum(isinstance(node, ast.Name) and node.id == "Any" for node in nodes),
        cast_count=sum(_is_cast(node) for node in nodes),
        test_casts=sum(_is_cast(node) for node in test_nodes),
        interfaces=_interfaces(node for node in nodes if isinstance(node, ast.ClassDef)),
        prose=sum(prose, Counted()),
    )


def _files(source: Path) -> dict[str, int]:
    """Count the files of every folder that holds Python files, sub-rooms apart."""
    found: dict[str, int] = {}
    for path in sorted(source.rglob("*.py")):
        room = str(path.parent.relative_to(source))
        found[room] = found.get(room, 0) + 1
    return found


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _length(node: ast.AST) -> int:
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _is_cast(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("cast", "typing.cast")


def _interfaces(classes: Iterator[ast.ClassDef]) -> dict[str, int]:
    """Count public methods over bases by name: two classes of one name are taken as one."""
    own: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for node in classes:
        methods = {
            one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        own.setdefault(node.name, set()).update(m for m in methods if not m.startswith("_"))
        bases.setdefault(node.name, set()).update(ast.unparse(base) for base in node.bases)

    def methods_of(name: str, seen: frozenset[str] = frozenset()) -> set[str]:
        if name not in own or name in seen:
            return set()
        inherited = (methods_of(base, seen | {name}) for base in bases[name])
        return own[name].union(*inherited)

    sizes = {name: len(methods_of(name)) for name in own}
    return {name: size for name, size in sorted(sizes.items()) if size >= LARGE_CLASS}


def report(house: House) -> Iterator[str]:
    tenth = statistics.quantiles(house.functions, n=10)[-1]
    largest = max(house.rooms.items(), key=lambda item: item[1])
    yield f"| rooms and sub-rooms | {len(house.rooms)} |"
    yield f"| files | {sum(house.rooms.values())} |"
    yield f"| files in the largest folder | {largest[1]} (`{largest[0]}/`) |"
    yield f"| lines | {house.lines:,} |"
    lengths = f"{statistics.median(house.functions):.0f}, {tenth:.0f}, {max(house.functions)}"
    yield f"| functions: median, 90th percentile, longest | {lengths} |"
    for name, size in house.interfaces.items():
        yield f"| public methods of `{name}` | {size} |"
    yield f"| `Any` in sources | {house.any_count} |"
    yield f"| `cast` in sources, in tests | {house.cast_count}, {house.test_casts} |"
    yield f"| words of comments and docstrings in sources | {house.prose.words:,} |"
    yield f'| "what" per 1,000 words | {house.prose.what_rate} |'
    yield f"| sentences that begin with What, Whether, Those, … | {house.prose.starts} |"
    yield f"| avoided words | {house.prose.avoided} |"
    for room, files in house.rooms.items():
        yield f"| files in `{room}/` | {files} |"


if __name__ == "__main__":
    for line in report(count(Path(sys.argv[1]) if sys.argv[1:] else ROOT)):
        print(line)
