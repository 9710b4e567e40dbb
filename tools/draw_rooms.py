"""Draws docs/images/rooms.svg: the rooms in their layers, and which room imports which.

A line is a room, in the order of the layers. A dot says that the room of the line imports the room
of the column. All dots lie right of the diagonal, because imports point down only.
"""

from collections.abc import Iterator
from pathlib import Path

from tools.rooms import ROOT, layers, rooms, uses

PICTURE = ROOT / "docs" / "images" / "rooms.svg"

LEFT, TOP, STEP = 130, 120, 30
DARK, MIDDLE, LIGHT, DOT = "#22303f", "#48566a", "#fbfaf7", "#4f8fba"
STRIPES = ("#f1f3f6", "#e6ebf1")


def draw(root: Path = ROOT) -> str:
    names = rooms(root)
    size = STEP * len(names)
    width, height = LEFT + size + 40, TOP + size + 50
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        ' font-family="Helvetica, Arial, sans-serif" font-size="13">',
        "  <title>The rooms in their layers, and the imports between them</title>",
        f'  <rect width="{width}" height="{height}" fill="{LIGHT}"/>',
        *_stripes(root, size),
        *_names(names),
        *_dots(names, uses(root)),
        f'  <text x="20" y="{height - 18}" fill="{MIDDLE}" font-size="12">Drawn from the code by'
        " tools/draw_rooms.py. A dot: the room of the line imports the room of the column.</text>",
    ]
    return "\n".join([*lines, "</svg>", ""])


def _stripes(root: Path, size: int) -> Iterator[str]:
    """Shade the layers in turns, so that rooms of one layer are seen to share it."""
    y = TOP
    for number, floor in enumerate(layers(root)):
        height = STEP * len(floor)
        place = f'x="20" y="{y}" width="{LEFT - 20 + size}" height="{height}"'
        yield f'  <rect {place} fill="{STRIPES[number % 2]}"/>'
        y += height


def _names(names: list[str]) -> Iterator[str]:
    for number, name in enumerate(names):
        y = TOP + STEP * number + 20
        yield f'  <text x="30" y="{y}" fill="{DARK}" font-weight="bold">{name}</text>'
        x = LEFT + STEP * number + 19
        yield (
            f'  <text transform="translate({x} {TOP - 8}) rotate(-60)" fill="{DARK}"'
            f' font-size="12">{name}</text>'
        )


def _dots(names: list[str], used: dict[str, set[str]]) -> Iterator[str]:
    for row, name in enumerate(names):
        y = TOP + STEP * row + STEP // 2
        own = LEFT + STEP * row
        yield f'  <rect x="{own + 9}" y="{y - 6}" width="12" height="12" fill="#c9d1db"/>'
        for column, other in enumerate(names):
            if other in used[name]:
                x = LEFT + STEP * column + STEP // 2
                yield (
                    f'  <circle cx="{x}" cy="{y}" r="6" fill="{DOT}">'
                    f"<title>{name} imports {other}</title></circle>"
                )


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
