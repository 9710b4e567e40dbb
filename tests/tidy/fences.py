"""The code blocks of the pages: each says if a test runs it.

The word after the language is `run`, if a test runs the block and compares its output, or `shown`,
if no test runs it. A block of `text` is output or a drawing, and needs no mark.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.tidy.rooms import ROOT

_FENCE = re.compile(r"^ *```(?P<info>.*)$")
MARKS = ("run", "shown")


@dataclass(frozen=True)
class Fence:
    page: Path
    line: int
    language: str
    mark: str


def pages(root: Path = ROOT) -> Iterator[Path]:
    yield from (path.relative_to(root) for path in sorted((root / "docs").rglob("*.md")))
    yield from (path.relative_to(root) for path in sorted(root.glob("*.md")))


def fences(root: Path = ROOT) -> Iterator[Fence]:
    for page in pages(root):
        is_open = False
        for number, line in enumerate((root / page).read_text(encoding="utf-8").splitlines(), 1):
            found = _FENCE.match(line)
            if found is None:
                continue
            if not is_open:
                language, _, mark = found["info"].strip().partition(" ")
                yield Fence(page, number, language, mark)
            is_open = not is_open


def unmarked(root: Path = ROOT) -> list[Fence]:
    """List the blocks that say neither `run` nor `shown`."""
    return [f for f in fences(root) if f.language != "text" and f.mark not in MARKS]
