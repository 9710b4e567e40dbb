"""Names of files, folders and tests that the pages mention in `code spans`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.tidy.code import functions
from tests.tidy.fences import pages
from tests.tidy.rooms import PACKAGE, ROOT, python_files

_SPAN = re.compile(r"(?<!`)`([\w./*…-]+)`(?!`)")
_TEST = re.compile(r"test_\w+…?")
_ROOTS = (".", str(PACKAGE), "src", "tests")
_OTHER_PROJECTS = Path("docs/evidence/upstream-suites.md")
"""This page names the tests of aiokafka and kafka-python."""


@dataclass(frozen=True)
class Mention:
    page: Path
    line: int
    name: str


def mentions(root: Path = ROOT) -> Iterator[Mention]:
    """Yield every code span that could be a path or a test."""
    for page in (*pages(root), *_room_pages(root)):
        if page == _OTHER_PROJECTS:
            continue
        for number, line in enumerate((root / page).read_text(encoding="utf-8").splitlines(), 1):
            yield from (Mention(page, number, name) for name in _SPAN.findall(line))


def _room_pages(root: Path) -> Iterator[Path]:
    yield from (path.relative_to(root) for path in sorted((root / PACKAGE).rglob("*.md")))


def missing_paths(root: Path = ROOT) -> list[Mention]:
    """List the mentions of Python files, and of folders of this tree, that do not exist."""
    files = [f"/{path}" for path in python_files("src", "tests", "bench", "tools", root=root)]
    tops = {path.name for folder in _ROOTS for path in (root / folder).iterdir() if path.is_dir()}

    def is_missing(mention: Mention) -> bool:
        name = mention.name
        if name.endswith(".py"):
            is_end = any(path.endswith(f"/{name}") for path in files)
            return not is_end and not _exists(name, mention.page, root)
        is_folder = "/" in name and name.split("/")[0] in tops and "." not in name
        return is_folder and not _exists(name, mention.page, root)

    return [mention for mention in mentions(root) if is_missing(mention)]


def _exists(name: str, page: Path, root: Path) -> bool:
    """Look a name up from the root, from the package and from the folder of its page."""
    folders = (*_ROOTS, str(page.parent))
    endings = ("", ".py")  # `kafka/handlers/produce` names a module.
    pattern = name.rstrip("/")
    return any(
        next((root / folder).glob(pattern + ending), None) is not None
        for folder in folders
        for ending in endings
    )


def missing_tests(root: Path = ROOT) -> list[Mention]:
    """List the mentions of tests that no file has; one with an ellipsis is the start of a name."""
    known = {function.name.rpartition(".")[2] for function in functions(root, ("tests",))}
    modules = {path.stem for path in python_files("tests", root=root)}

    def is_missing(mention: Mention) -> bool:
        if _TEST.fullmatch(mention.name) is None:
            return False
        start = mention.name.removesuffix("…")
        return not any(
            name == start or ("…" in mention.name and name.startswith(start))
            for name in known | modules
        )

    return [mention for mention in mentions(root) if is_missing(mention)]
