from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple, NewType
from uuid import UUID

import pytest

from stratalog.control.sql.table import Expression, Selection, Table, rows_from

CatId = NewType("CatId", UUID)
ID = UUID(int=5)


class Colour(StrEnum):
    BLACK = "black"
    WHITE = "white"


class Mood(IntEnum):
    CALM = 0
    CROSS = 1


class Chip(NamedTuple):
    number: int
    vendor: str = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cat:
    cat_id: CatId
    name: str | None
    colour: Colour
    mood: Mood
    tame: bool
    mother: CatId | None
    chip: Chip | None = None
    toys: tuple[str, ...] = ()


CATS = Table(
    "cats",
    cat_id="uuid",
    name="text null",
    colour="text",
    mood="smallint",
    tame="boolean",
    mother="uuid null",
    number="bigint null",
    vendor="text null",
    toys="text",
)
CHIP = Selection(Chip, CATS, filled=("number", "vendor"), none_without="number")
CAT = Selection(Cat, CATS, chip=CHIP, toys=CATS["toys"].decoded(lambda text: tuple(text.split())))


def test_a_row_of_either_database_becomes_the_same_value() -> None:
    expected = Cat(
        cat_id=CatId(ID),
        name=None,
        colour=Colour.WHITE,
        mood=Mood.CROSS,
        tame=True,
        mother=None,
        chip=Chip(7, "acme"),
        toys=("ball", "mouse"),
    )
    for row in (
        (ID, None, "white", 1, True, None, 7, "acme", "ball mouse"),
        (str(ID), None, "white", 1, 1, None, 7, "acme", "ball mouse"),
    ):
        assert CAT.read(row) == expected
        assert CAT.read(row).tame is True
        assert CAT.read(row).mood is Mood.CROSS


def test_a_nested_value_is_none_without_its_column() -> None:
    row = (ID, "Tom", "black", 0, False, str(ID), None, None, "")
    assert CAT.read(row).chip is None
    assert CAT.read(row).mother == ID


def test_the_select_list_names_the_table_and_follows_the_fields() -> None:
    assert CHIP.columns == "cats.number, cats.vendor"


def test_absent_fields_keep_their_defaults() -> None:
    selection = Selection(Chip, CATS, absent=("vendor",), filled=("number",))
    assert selection.columns == "cats.number"
    assert selection.read((3,)) == Chip(3, "unknown")


def test_rows_take_attributes_by_the_names_of_columns() -> None:
    shape = CATS.shape("number", "vendor")
    rows = rows_from(shape, [Chip(1, "a"), Chip(2, "b")])
    assert (rows.shape, rows.values) == (shape, [(1, "a"), (2, "b")])
    assert rows_from(shape, [Chip(1, "a")], vendor="number").values == [(1, 1)]


def test_an_insert_selects_its_columns_and_computes_the_others() -> None:
    toys = Table("toys", name="text", made_ms="bigint", owner="uuid null")
    assert toys.insert(toys.shape("name"), made_ms="{now_ms}") == (
        "INSERT INTO toys (name, made_ms) SELECT r.name, {now_ms} FROM {rows} WHERE true"
    )
    assert (
        toys.overwrite("made_ms", "owner") == "made_ms = excluded.made_ms, owner = excluded.owner"
    )


def test_a_mistaken_declaration_fails_at_import() -> None:
    class Named(NamedTuple):
        name: str

    class Numbered(NamedTuple):
        cat_id: int

    class Unknown(NamedTuple):
        age: int

    for mistake, says in (
        (lambda: Table("toys", name="varchar"), "unknown type"),
        (lambda: Selection(Named, CATS), "may be null"),
        (lambda: Selection(Numbered, CATS), "uuid does not fit"),
        (lambda: Selection(Unknown, CATS), "Unknown.age is no column of cats"),
        (lambda: Selection(Chip, CATS, size=Expression("1", "bigint")), "has no field size"),
        (lambda: CATS.shape_without("age"), "cats has no column age"),
        (lambda: CATS.insert(CATS.shape("cat_id")), "colour, mood, tame, toys"),
        (lambda: CATS.insert(CATS.shape_without("name"), age="1"), "age"),
    ):
        with pytest.raises(TypeError, match=says):
            mistake()
