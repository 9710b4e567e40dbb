"""The rules of code: lengths, the size of interfaces, the home of errors, imports of tests."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.tidy.rooms import ROOT, python_files

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 50
MAX_PUBLIC_METHODS = 25
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_TREE = ("src", "tests", "bench", "tools")
_SERVERS = {"s3_server", "s3_url", "postgres_server", "postgres_dsn"}
_SPARKS = {"local_spark", "connect_spark", "shared_spark", "spark_cluster"}
_SERVER_HELPERS = ("tests.support.servers", "tests.support.spark")
_ERROR_BASE = re.compile(r"\w+(Error|Exception|Warning)|Exception|BaseException")


@dataclass(frozen=True)
class Function:
    path: Path
    name: str
    lines: int


@cache
def parsed(path: Path, root: Path = ROOT) -> ast.Module:
    return ast.parse((root / path).read_text(encoding="utf-8"))


def long_files(root: Path = ROOT) -> dict[str, int]:
    """Map each file that is too long to its number of lines."""
    lengths = {
        str(path): len((root / path).read_text(encoding="utf-8").splitlines())
        for path in python_files(*_TREE, root=root)
    }
    return {path: lines for path, lines in lengths.items() if lines > MAX_FILE_LINES}


def functions(root: Path = ROOT, folders: tuple[str, ...] = _TREE) -> Iterator[Function]:
    """Yield every function and method with its length, from `def` to its last line."""
    for path in python_files(*folders, root=root):
        yield from _functions(path, parsed(path, root), "")


def _functions(path: Path, node: ast.AST, prefix: str) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _FUNCTION):
            assert child.end_lineno is not None
            name = f"{prefix}{child.name}"
            yield Function(path, name, child.end_lineno - child.lineno + 1)
            yield from _functions(path, child, f"{name}.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(path, child, f"{prefix}{child.name}.")
        else:
            yield from _functions(path, child, prefix)


def long_functions(root: Path = ROOT) -> dict[str, int]:
    """Map each function that is too long to its number of lines."""
    found: dict[str, int] = {}
    for function in functions(root):
        if function.lines > MAX_FUNCTION_LINES:
            found[function.name] = max(found.get(function.name, 0), function.lines)
    return found


def public_methods(root: Path = ROOT) -> dict[str, int]:
    """Map each class of the sources to the number of its public methods, inherited ones included.

    Bases are looked up by name, so that two classes of one name count as one. Tests of a contract
    suite are no interface.
    """
    own: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for path in python_files("src", root=root):
        for node in ast.walk(parsed(path, root)):
            if isinstance(node, ast.ClassDef):
                own.setdefault(node.name, set()).update(_public_methods(node))
                bases.setdefault(node.name, set()).update(ast.unparse(base) for base in node.bases)

    def methods_of(name: str, seen: frozenset[str] = frozenset()) -> set[str]:
        if name not in own or name in seen:
            return set()
        inherited = (methods_of(base, seen | {name}) for base in bases[name])
        return own[name].union(*inherited)

    return {name: len(methods_of(name)) for name in sorted(own)}


def _public_methods(node: ast.ClassDef) -> Iterator[str]:
    for child in node.body:
        if isinstance(child, _FUNCTION) and not child.name.startswith(("_", "test_")):
            yield child.name


def misplaced_errors(root: Path = ROOT) -> dict[str, Path]:
    """Map each public error class that stands outside an `errors.py` to its file.

    A private error (`_NotBegunError`) never leaves its file: it is a jump, not an error of a room.
    """
    found: dict[str, Path] = {}
    for path in python_files("src", root=root):
        if path.name == "errors.py":
            continue
        for node in ast.walk(parsed(path, root)):
            if isinstance(node, ast.ClassDef) and _is_error(node) and not node.name.startswith("_"):
                found[node.name] = path
    return found


def _is_error(node: ast.ClassDef) -> bool:
    names = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
    return any(_ERROR_BASE.fullmatch(name) for name in names)


def imports(path: Path, root: Path = ROOT) -> Iterator[str]:
    """Yield the dotted name of everything that a file imports."""
    for node in ast.walk(parsed(path, root)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_of_tests(root: Path = ROOT) -> dict[str, list[str]]:
    """Map each file that imports from a test module to the modules that it takes names from."""
    found: dict[str, list[str]] = {}
    for path in python_files("tests", "bench", "tools", root=root):
        for name in imports(path, root):
            if name.startswith("tests.") and any(p.startswith("test_") for p in name.split(".")):
                found.setdefault(str(path), []).append(name)
    return found


def users_of_servers(root: Path = ROOT) -> list[str]:
    """List the unit tests that ask for a server or for Spark."""
    found: list[str] = []
    for path in python_files("tests/unit", root=root):
        if any(name.startswith(_SERVER_HELPERS) for name in imports(path, root)):
            found.append(str(path))
        for node in ast.walk(parsed(path, root)):
            if isinstance(node, _FUNCTION) and _asks(node, _SERVERS | _SPARKS):
                found.append(f"{path}: {node.name}")
    return found


def _asks(function: ast.FunctionDef | ast.AsyncFunctionDef, fixtures: set[str]) -> bool:
    return any(argument.arg in fixtures for argument in function.args.args)


def importers_of(package: str, root: Path = ROOT) -> list[Path]:
    """List the source files that import a package."""
    return [
        path
        for path in python_files("src", root=root)
        if any(name == package or name.startswith(f"{package}.") for name in imports(path, root))
    ]
