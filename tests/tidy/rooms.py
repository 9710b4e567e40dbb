"""The rooms of the tree, and the files of each."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = Path("src/stratalog")
# A top-level folder that is one room, or a page that is one.
_FOLDERS = ("src/pyspark_stratalog", "tests", "bench", "tools", "docs")
_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")


def python_files(*folders: str, root: Path = ROOT) -> Iterator[Path]:
    """Yield the Python files below some folders of the tree, as paths relative to its root."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            yield path.relative_to(root)


def room_of(path: Path) -> str:
    """Name the room of a file: `control` for a file of the package, `docs` for a page."""
    if path.is_relative_to(PACKAGE):
        inner = path.relative_to(PACKAGE)
        return inner.parts[0] if len(inner.parts) > 1 else "stratalog"
    for folder in _FOLDERS:
        if path.is_relative_to(folder):
            return Path(folder).name
    return path.stem


def prose_files(root: Path = ROOT) -> Iterator[Path]:
    """Yield every file whose prose is counted: sources, tests, tools and pages."""
    yield from python_files("src", "tests", "bench", "tools", root=root)
    pages = [*(root / "docs").rglob("*.md"), *(root / PACKAGE).rglob("*.md")]
    for page in sorted(pages):
        yield page.relative_to(root)
    for name in _PAGES:
        if (root / name).exists():
            yield Path(name)
