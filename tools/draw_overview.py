"""Draws docs/images/overview.svg: clients, brokers, control plane, tiers, and Spark beside them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "overview.svg"

WIDTH, HEIGHT = 860, 520
DARK, MIDDLE, LIGHT = "#22303f", "#48566a", "#fbfaf7"
CLIENT = ("#e7edf5", "#7d93ad")
BROKER = ("#fff3dc", "#c79a45")
CONTROL = ("#e6f2e8", "#6f9f78")
SPARK = ("#f6e6ea", "#b06a7c")
STORE = ("#eef0f3", "#8a94a3")
ORDERS_0, ORDERS_1, CLICKS, FOOTER = "#e08e45", "#4f8fba", "#6aa977", "#8d97a5"

_INDEXES = ((64, FOOTER, "indexes"), (70, FOOTER, "manifest"))
_BLOCK_1 = (
    (70, ORDERS_0, "orders-0"),
    (60, ORDERS_1, "orders-1"),
    (60, CLICKS, "clicks-3"),
    (44, FOOTER, "footer"),
)
_BLOCK_2 = (
    (90, ORDERS_0, "orders-0"),
    (60, ORDERS_1, "orders-1"),
    (70, CLICKS, "clicks-3"),
    (44, FOOTER, "footer"),
)
_SPLIT_FILE = (
    (190, ORDERS_1, "orders-1"),
    (170, CLICKS, "clicks-3"),
    (44, FOOTER, "footer"),
)
_SEGMENT_0 = ((170, ORDERS_0, "orders-0: log"), *_INDEXES)
_SEGMENT_1 = ((120, ORDERS_1, "orders-1: log"), *_INDEXES)


def draw() -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="Helvetica, Arial, sans-serif" font-size="14">',
        "  <title>Clients talk to thin brokers; bytes go to the object store, coordinates to the"
        " control plane; Spark turns blocks into segments</title>",
        '  <defs><marker id="a" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7"'
        ' markerHeight="7" orient="auto-start-reverse"><path d="M0 0L10 5L0 10z"'
        f' fill="{MIDDLE}"/></marker></defs>',
        f'  <rect width="{WIDTH}" height="{HEIGHT}" fill="{LIGHT}"/>',
        *_box(30, 30, 180, 56, CLIENT, "producers", "any Kafka client"),
        *_box(30, 110, 180, 56, CLIENT, "consumers", "any Kafka client"),
        *_box(30, 190, 180, 56, CLIENT, "DataFrames", "Spark, or stratalog.read"),
        *_box(310, 30, 220, 56, BROKER, "broker", "collect · seal · upload · commit"),
        *_box(310, 110, 220, 56, BROKER, "broker", "any one serves any partition"),
        *_box(310, 190, 220, 56, SPARK, "pipeline on Spark", "split · merge · rewrite"),
        *_box(630, 30, 200, 216, CONTROL, "control plane", "SQLite or PostgreSQL"),
        *_coordinates(642, 92),
        *_arrows(),
        *_store(),
    ]
    return "\n".join([*lines, "</svg>", ""])


def _box(
    x: int, y: int, width: int, height: int, colours: tuple[str, str], name: str, note: str
) -> Iterator[str]:
    fill, stroke = colours
    size = f'x="{x}" y="{y}" width="{width}" height="{height}"'
    yield f'  <rect {size} rx="8" fill="{fill}" stroke="{stroke}"/>'
    middle = x + width // 2
    yield _text(middle, y + 24, name, DARK, weight="bold", anchor="middle")
    yield _text(middle, y + 43, note, DARK, size=12, anchor="middle")


def _coordinates(x: int, y: int) -> Iterator[str]:
    """Show some rows, as the control plane keeps them."""
    yield f'  <rect x="{x}" y="{y}" width="176" height="84" fill="#fff" stroke="#9cbfa3"/>'
    rows = (
        "orders-0  150..220  block b2",
        "orders-1   96..130  block b2",
        "orders-0    0..149  segment s1",
    )
    for number, row in enumerate(rows):
        yield (
            f'  <text x="{x + 7}" y="{y + 22 + 24 * number}" font-size="9.5" fill="#1e3d25"'
            f' font-family="Menlo, Consolas, monospace">{row}</text>'
        )
    yield _text(x + 88, y + 112, "offsets, boundaries,", MIDDLE, size=12, anchor="middle")
    yield _text(x + 88, y + 130, "claims, leases, groups", MIDDLE, size=12, anchor="middle")


def _arrows() -> Iterator[str]:
    both = 'marker-end="url(#a)" marker-start="url(#a)"'
    one = 'marker-end="url(#a)"'
    paths = [
        ("M210 58H308", one),
        ("M308 138H212", one),
        ("M210 70L308 124", one),
        ("M308 76L212 126", one),
        ("M530 50H628", both),
        ("M530 130H628", both),
        ("M530 218H628", both),
        # Both brokers to the store, past the pipeline.
        ("M530 66H580V284", both),
        ("M530 146H564V284", both),
        ("M420 246V284", both),
        # A scan asks the control plane for coordinates, and the store for bytes.
        ("M170 248V265H730V248", both),
        ("M90 284V248", one),
    ]
    yield f'  <g stroke="{MIDDLE}" stroke-width="1.6" fill="none">'
    for path, ends in paths:
        yield f'    <path d="{path}" {ends}/>'
    yield "  </g>"


def _store() -> Iterator[str]:
    fill, stroke = STORE
    size = 'x="30" y="286" width="800" height="212" rx="8"'
    yield f'  <rect {size} fill="{fill}" stroke="{stroke}"/>'
    yield _text(46, 310, "object store", DARK, weight="bold")
    yield _text(156, 310, "folder, S3, GCS, Azure: every byte", MIDDLE, size=12)
    yield _text(46, 340, "block tier", DARK, size=12, weight="bold")
    yield _text(46, 356, "fresh, shared by partitions", MIDDLE, size=11)
    yield from _bars(230, 328, _BLOCK_1)
    yield from _bars(480, 328, _BLOCK_2)
    yield _text(46, 396, "split files", DARK, size=12, weight="bold")
    yield _text(46, 412, "sorted by partition", MIDDLE, size=11)
    yield from _bars(230, 384, _SPLIT_FILE)
    yield _text(46, 452, "remote tier", DARK, size=12, weight="bold")
    yield _text(46, 468, "segments, Kafka's own format", MIDDLE, size=11)
    yield from _bars(230, 440, _SEGMENT_0)
    yield from _bars(550, 440, _SEGMENT_1)


def _bars(x: int, y: int, parts: Sequence[tuple[int, str, str]]) -> Iterator[str]:
    for width, colour, name in parts:
        size = f'x="{x}" y="{y}" width="{width}" height="34"'
        yield f'  <rect {size} fill="{colour}" stroke="#fff"/>'
        yield _text(x + width // 2, y + 21, name, "#fff", size=11, anchor="middle")
        x += width


def _text(
    x: int, y: int, text: str, fill: str, *, size: int = 14, weight: str = "", anchor: str = ""
) -> str:
    style = f' font-weight="{weight}"' if weight else ""
    style += f' text-anchor="{anchor}"' if anchor else ""
    return f'  <text x="{x}" y="{y}" fill="{fill}" font-size="{size}"{style}>{text}</text>'


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
