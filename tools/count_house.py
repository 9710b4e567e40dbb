"""Counts the shape of this tree beside that of an earlier one, for docs/design/the-house.md.

Run: python -m tools.count_house <folder of the earlier tree>
"""

import ast
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.tidy.code import public_methods
from tests.tidy.words import Counted, count_files
from tools.rooms import ROOT


@dataclass(frozen=True)
class House:
    rooms: dict[str, int]
    """Python files by folder."""
    lines: int
    functions: list[int]
    """The lines of every function."""
    any_count: int
    cast_count: int
    test_casts: int
    interfaces: dict[str, int]
    """Public methods of every class, inherited ones included."""
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
        interfaces=public_methods(root),
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


def figures(house: House) -> dict[str, str]:
    """Map each line of the first table to its value."""
    tenth = statistics.quantiles(house.functions, n=10)[-1]
    name, size = max(house.interfaces.items(), key=lambda item: item[1])
    folder, files = max(house.rooms.items(), key=lambda item: item[1])
    return {
        "folders with code": f"{len(house.rooms)}",
        "files": f"{sum(house.rooms.values())}",
        "files in the largest folder": f"{files} (`{folder}/`)",
        "lines": f"{house.lines:,}",
        "functions: median, 90th percentile, longest": (
            f"{statistics.median(house.functions):.0f}, {tenth:.0f}, {max(house.functions)}"
        ),
        "public methods of the largest class": f"{size} (`{name}`)",
        "`Any` in sources": f"{house.any_count}",
        "`cast` in sources, in tests": f"{house.cast_count}, {house.test_casts}",
        "words of comments and docstrings in sources": f"{house.prose.words:,}",
        "`what` per 1,000 of those words": f"{house.prose.what_rate}",
        "sentences that begin with `What`, `Whether`, `Those`, …": f"{house.prose.starts}",
        "avoided words": f"{house.prose.avoided}",
    }


def rooms(house: House) -> dict[str, str]:
    """Map each top-level room to its files, with the files of its sub-rooms."""
    found: dict[str, int] = {}
    for folder, files in house.rooms.items():
        room = "the ground" if folder == "." else f"`{folder.partition('/')[0]}/`"
        found[room] = found.get(room, 0) + files
    return {room: f"{files}" for room, files in found.items()}


def table(before: dict[str, str], now: dict[str, str]) -> Iterator[str]:
    yield "| | before | now |"
    yield "|---|---|---|"
    for name in sorted({**before, **now}, key=[*now, *before].index):
        yield f"| {name} | {before.get(name, '–')} | {now.get(name, '–')} |"


def main() -> None:
    before, now = count(Path(sys.argv[1])), count(ROOT)
    print(*table(figures(before), figures(now)), "", sep="\n")
    print(*table(rooms(before), rooms(now)), sep="\n")


if __name__ == "__main__":
    main()
