"""The prose of a file, as paragraphs: comments and docstrings of Python, the text of Markdown.

Code is no prose: `spans like this`, fenced blocks, addresses and linter directives are left out.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_DIRECTIVE = re.compile(r"(noqa|type:|pragma|fmt:|mypy:|ruff:|-\*-).*")
_SPAN = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\]\([^)]*\)|https?://\S+")
_FENCE = re.compile(r"^ *(```|~~~)")
# A paragraph of its own: a list item, a heading, a quotation.
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.|#+|>)\s+")


@dataclass(frozen=True)
class Paragraph:
    line: int
    text: str


def paragraphs(path: Path) -> Iterator[Paragraph]:
    """Yield the paragraphs of a Python or Markdown file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from _of_markdown(text)
    else:
        yield from _of_comments(text)
        yield from _of_docstrings(text)


def _of_comments(source: str) -> Iterator[Paragraph]:
    """Join the comments of adjoining lines, as a reader does."""
    first, last, words = 0, -1, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if line != last + 1 and words:
            yield from _paragraph(first, words)
            words = []
        if not words:
            first = line
        last = line
        words.append(_DIRECTIVE.sub("", token.string.lstrip("#! ")))
    if words:
        yield from _paragraph(first, words)


def _of_docstrings(source: str) -> Iterator[Paragraph]:
    """Yield every string that stands alone as a statement: docstrings of attributes too."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield from _of_lines(node.value.value.splitlines(), node.lineno)


def _of_markdown(text: str) -> Iterator[Paragraph]:
    """Blank the fenced blocks, so that lines keep their numbers."""
    lines, fenced = list[str](), False
    for line in text.splitlines():
        is_fence = _FENCE.match(line) is not None
        lines.append("" if fenced or is_fence else line)
        fenced = fenced != is_fence
    yield from _of_lines(lines, 1)


def _of_lines(lines: list[str], first_line: int) -> Iterator[Paragraph]:
    """Split lines into paragraphs: at blank lines, at list items, and at the cells of a table."""
    start, words = first_line, list[str]()
    for number, line in enumerate(lines, first_line):
        is_table = line.lstrip().startswith("|")
        if words and (not line.strip() or is_table or _ITEM.match(line)):
            yield from _paragraph(start, words)
            words = []
        if is_table:
            for cell in line.strip().strip("|").split("|"):
                yield from _paragraph(number, [cell])
        elif line.strip():
            if not words:
                start = number
            words.append(_ITEM.sub("", line))
    yield from _paragraph(start, words)


def _paragraph(line: int, words: list[str]) -> Iterator[Paragraph]:
    joined = " ".join(" ".join(words).split())
    text = _LINK.sub("]", _SPAN.sub("`", joined)).strip()
    if text:
        yield Paragraph(line, text)
