"""The table of ratios, in Markdown."""

from collections.abc import Sequence

from bench.kafka.rounds import FLUSHED, KAFKA, MOCK, STRATALOG, Figures
from bench.kafka.rows import Row

COLUMNS = ("row", "Stratalog", "Kafka", "ratio", "range", "flushed Kafka", "mock", "server's time")


def header(trees: Sequence[str]) -> str:
    """With the names of the trees beside this one."""
    names = [*COLUMNS, *trees]
    return _line(names) + "\n" + "|---" * len(names) + "|"


def line(row: Row, figures: dict[str, Figures], noise: float, trees: Sequence[str]) -> str:
    ours, kafka = figures[STRATALOG], figures[KAFKA]
    rounds = [a / b for a, b in zip(ours.figures, kafka.figures, strict=True)]
    disturbed = any(share > noise for side in figures.values() for share in side.noise)
    cells = [
        f"`{row.name}`" + (" ~" if disturbed else ""),
        _figure(row, ours),
        _figure(row, kafka),
        f"**{ours.median / kafka.median:.2f}**",
        f"{min(rounds):.2f} to {max(rounds):.2f}",
        _against(row, ours, figures.get(FLUSHED)),
        _against(row, ours, figures.get(MOCK)),
        _cost(row, ours, kafka),
        *(_other_tree(row, figures[tree], kafka) for tree in trees),
    ]
    return _line(cells)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _figure(row: Row, side: Figures) -> str:
    digits = 2 if side.median < 10 else 0
    return f"{side.median:,.{digits}f} {row.unit.name}"


def _against(row: Row, ours: Figures, other: Figures | None) -> str:
    if other is None:
        return ""
    return f"{_figure(row, other)}: {ours.median / other.median:.2f}"


def _cost(row: Row, ours: Figures, kafka: Figures) -> str:
    if not row.unit.cost:
        return ""
    return f"{ours.cost:.2f} to {kafka.cost:.2f} {row.unit.cost}: {ours.cost / kafka.cost:.2f}"


def _other_tree(row: Row, tree: Figures, kafka: Figures) -> str:
    cost = f", {tree.cost:.2f} {row.unit.cost}" if row.unit.cost else ""
    return f"{_figure(row, tree)}: {tree.median / kafka.median:.2f}{cost}"
