"""The picture of the rooms is drawn from the code, and must be the code's of today."""

from tests.tidy.rooms import ROOT
from tools.draw_rooms import PICTURE, draw
from tools.rooms import layers, rooms, uses


def test_the_picture_of_the_rooms_is_current() -> None:
    assert PICTURE.read_text(encoding="utf-8") == draw(), "run make docs"


def test_every_room_is_in_a_layer() -> None:
    package = ROOT / "src" / "stratalog"
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    assert folders == set(rooms())


def test_imports_point_down() -> None:
    floor_of = {name: number for number, floor in enumerate(layers()) for name in floor}
    for room, others in uses().items():
        assert all(floor_of[other] > floor_of[room] for other in others), (room, others)
