"""The table of guards in `docs/safety.md`: the first seed that notices each one's absence."""

from tests.simulation.guards import Guard
from tests.simulation.runs import Notice

HEADING = ("| guard | meaning | seeds | first violation |", "|---|---|---|---|")
_BEGINS = "<!-- The table of guards -->"
_ENDS = "<!-- The end of the table of guards -->"
_VIOLATION_CHARS = 100


def row_of(guard: Guard, notice: Notice) -> str:
    violation = _shortened(notice.violations[0])
    return f"| {guard.name} | {guard.meaning} | {notice.seed + 1} | {violation} |"


def with_table(page: str, rows: list[str]) -> str:
    before, _, after = _parts(page)
    return "\n".join([before + _BEGINS, *HEADING, *rows, _ENDS + after])


def recorded_seeds(page: str) -> dict[str, int]:
    """Return the first seed that noticed each guard, by the name of the guard."""
    _, table, _ = _parts(page)
    rows = [line.split(" | ") for line in table.split("\n") if line.startswith("| ")]
    return {row[0].removeprefix("| "): int(row[2]) - 1 for row in rows[1:]}


def _parts(page: str) -> tuple[str, str, str]:
    before, rest = page.split(_BEGINS)
    table, after = rest.split(_ENDS)
    return before, table, after


def _shortened(violation: str) -> str:
    text = " ".join(violation.replace("|", "/").split())
    return text if len(text) <= _VIOLATION_CHARS else f"{text[:_VIOLATION_CHARS]} ..."
