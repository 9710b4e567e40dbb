"""The rooms of a tree and the imports between them, read from the code.

The order comes from the layers of import-linter in pyproject.toml, the arrows from the import
statements. Rooms of the ground floor (single modules) are left out: every room uses them.
"""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent


def layers(root: Path = ROOT) -> list[list[str]]:
    """List the layers from top to bottom, each with the rooms on it that exist as packages."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (
        one for one in project["tool"]["importlinter"]["contracts"] if "containers" in one
    )
    floors = [
        [name.strip(" ()") for name in layer.replace(":", "|").split("|")]
        for layer in contract["layers"]
    ]
    package = root / "src" / "stratalog"
    kept = [[name for name in floor if (package / name).is_dir()] for floor in floors]
    return [floor for floor in kept if floor]


def rooms(root: Path = ROOT) -> list[str]:
    return [name for floor in layers(root) for name in floor]


def python_files(room: str, root: Path = ROOT) -> list[Path]:
    return sorted((root / "src" / "stratalog" / room).rglob("*.py"))


def uses(root: Path = ROOT) -> dict[str, set[str]]:
    """Map each room to the rooms that it imports."""
    known = set(rooms(root))
    return {
        room: {
            name
            for path in python_files(room, root)
            for name in _imported_rooms(path)
            if name in known and name != room
        }
        for room in rooms(root)
    }


def _imported_rooms(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("stratalog."):
            yield str(node.module).split(".")[1]
        elif isinstance(node, ast.ImportFrom) and node.module == "stratalog":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("stratalog."):
                    yield alias.name.split(".")[1]
