"""Output of commands: data to stdout, remarks about it to stderr.

Names of groups, members, clients and topics come from strangers, and a terminal obeys the control
characters in them. So every text is made printable here, on its way out.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.printable import CONTROLS, CONTROLS_OF_A_VALUE, printable, spelled

PATIENCE_SECONDS = 2.0
"""A bar for shorter work would only flicker."""

stdout = Console(highlight=False, soft_wrap=True)
stderr = Console(highlight=False, soft_wrap=True, stderr=True)


def _printable_markup(markup: str) -> str:
    """Empty lines before and after a message are ours. A line end inside of it is part of a name,
    and would let the rest of the name pass for a message."""
    text = markup.strip("\n")
    start = len(markup) - len(markup.lstrip("\n"))
    return markup[:start] + printable(text) + markup[start + len(text) :]


def say(markup: str) -> None:
    stdout.print(_printable_markup(markup))


def note(markup: str) -> None:
    """Print a remark for the person at the terminal, not for the next command of a pipe."""
    stderr.print(_printable_markup(markup))


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def print_error(error: BaseException) -> None:
    message = " ".join(str(error).split()) or type(error).__name__
    stderr.print(f"[bold red]error:[/] {escape(printable(message))}")


def print_json(value: object) -> None:
    # JSON itself escapes only the characters below the space.
    text = json.dumps(value, ensure_ascii=False)
    typer.echo(CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def print_bytes(line: bytes) -> None:
    """Write a line of records' bytes: as they are to a file or a pipe, printable to a terminal."""
    if sys.stdout.isatty():
        line = CONTROLS_OF_A_VALUE.sub(spelled, line.decode(errors="backslashreplace")).encode()
    sys.stdout.buffer.write(line + b"\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Plain columns that survive a pipe: nothing is cut, wrapped or drawn."""
    texts = [[printable(str(cell)) for cell in row] for row in rows]
    cells = [[column.upper() for column in columns], *texts]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    for position, row in enumerate(cells):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        stdout.print(escape(line.rstrip()), style="bold" if position == 0 else None)


class ProgressLine:
    """A bar on stderr, if that is a terminal and the work takes long enough to be watched."""

    def __init__(self, title: str, clock: Clock) -> None:
        self._clock = clock
        self._visible_at = clock.monotonic() + PATIENCE_SECONDS
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=stderr,
            transient=True,
            disable=not stderr.is_terminal,
        )
        self._task = self._progress.add_task(printable(title), total=None)

    def update(self, title: str, done: float, total: float | None) -> None:
        if not self._progress.disable and self._clock.monotonic() >= self._visible_at:
            self._progress.start()
        self._progress.update(self._task, description=printable(title), completed=done, total=total)

    def stop(self) -> None:
        self._progress.stop()


@contextmanager
def progress_line(title: str, clock: Clock | None = None) -> Iterator[ProgressLine]:
    line = ProgressLine(title, clock or SYSTEM_CLOCK)
    try:
        yield line
    finally:
        line.stop()
