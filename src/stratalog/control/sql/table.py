"""Tables and the values that are read from their rows: each column is declared once.

A `Table` knows the columns of a table with their types. It gives the row shape and the text of an
insert. A `Selection` reads a dataclass or a named tuple from one or more tables: it gives the
select list and the function that turns a row into a value.

Both are checked when their module is imported. Every field needs a column, a column's type must fit
the field's annotation, a column that may be null needs a field that may be None, and an insert
must fill every column that may not be null. A contract test compares each `Table` with the schema
that the migrations make.

The function is compiled once from generated source, as `dataclasses` does it, because fetches and
commits read thousands of rows. `bench/row_mapper.py` measures it beside handwritten code.
"""

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from stratalog.control.sql.database import Row, Rows, Shape, parse_uuid

T = TypeVar("T")

_PYTHON_TYPES: Mapping[str, type] = {
    "uuid": UUID,
    "smallint": int,
    "integer": int,
    "bigint": int,
    "boolean": bool,
    "text": str,
    "bytea": bytes,
}
_NULL = " null"


class Expression(NamedTuple):
    """An item of a select list, with its type as in a column's declaration."""

    sql: str
    type: str
    decode: Callable[[Any], Any] | None = None
    """Makes the field's value, where the annotation alone does not tell how."""

    @property
    def base_type(self) -> str:
        return self.type.removesuffix(_NULL)

    @property
    def nullable(self) -> bool:
        return self.type.endswith(_NULL)

    def decoded(self, decode: Callable[[Any], Any]) -> "Expression":
        return self._replace(decode=decode)


class Table:
    """A table of the schema: `Table("leases", lease_id="uuid", ended_ms="bigint null")`."""

    def __init__(self, name: str, /, **columns: str) -> None:
        for column, kind in columns.items():
            if kind.removesuffix(_NULL) not in _PYTHON_TYPES:
                raise TypeError(f"{name}.{column}: unknown type {kind!r}")
        self.name = name
        self.columns: Mapping[str, str] = columns

    def __getitem__(self, column: str) -> Expression:
        return Expression(f"{self.name}.{column}", self.columns[column])

    def __contains__(self, column: str) -> bool:
        return column in self.columns

    def shape(self, *columns: str, **others: str) -> Shape:
        """Return the shape of rows with some of the columns, and `others` with their types."""
        types_of = {column: self[column].base_type for column in columns} | others
        return Shape(tuple(types_of), tuple(types_of.values()))

    def shape_without(self, *columns: str) -> Shape:
        """Return the shape of rows with all columns but these."""
        unknown = set(columns) - set(self.columns)
        if unknown:
            raise TypeError(f"{self.name} has no column {', '.join(sorted(unknown))}")
        return self.shape(*(column for column in self.columns if column not in columns))

    def insert(self, shape: Shape, **computed: str) -> str:
        """Return a statement that inserts a row source of this shape.

        `computed` has the SQL of the columns that do not come from the source; a source column of
        the same name may be used in it. The statement may be followed by ON CONFLICT.
        """
        values = {column: f"r.{column}" for column in shape.names} | computed
        given = set(values)
        missing = {name for name in self.columns if not self[name].nullable} - given
        if missing or not given <= set(self.columns):
            wrong = ", ".join(sorted(missing | (given - set(self.columns))))
            raise TypeError(f"an insert into {self.name} lacks or does not know: {wrong}")
        # Without WHERE, SQLite would take a following ON for that of a join.
        return (
            f"INSERT INTO {self.name} ({', '.join(values)})"
            f" SELECT {', '.join(values.values())} FROM {{rows}} WHERE true"
        )

    def overwrite(self, *columns: str) -> str:
        """Return the SET list of ON CONFLICT DO UPDATE: the new row's values of these columns."""
        return ", ".join(f"{column} = excluded.{column}" for column in columns if self[column])


def rows_from(shape: Shape, values: Iterable[object], **attributes: str) -> Rows:
    """Return rows whose columns are the attributes of the values, by name.

    `attributes` has the attributes of columns that have another name; they may have dots.
    """
    read = attrgetter(*(attributes.get(name, name) for name in shape.names))
    return Rows(shape, list(map(read, values)))


class Selection(Generic[T]):
    """The columns from which values of one class are read, in the order of its fields."""

    def __init__(
        self,
        made: type[T],
        /,
        *tables: Table,
        absent: Sequence[str] = (),
        filled: Sequence[str] = (),
        none_without: str | None = None,
        **sources: "Expression | Selection[Any]",
    ) -> None:
        """A field is read from the first of the tables that has a column of its name, unless
        `sources` has an expression for it, or a selection whose value it is.

        `absent` are fields that keep their defaults. `filled` are columns that may be null, but
        are not in the rows that are read. A nested selection is None in rows in which its column
        `none_without` is null.
        """
        self.made = made
        self.none_without = none_without
        self.filled = frozenset(filled)
        hints = typing.get_type_hints(made)
        names = [name for name in _field_names(made) if name not in absent]
        unknown = {*absent, *sources} - set(_field_names(made))
        if unknown:
            raise TypeError(f"{made.__name__} has no field {', '.join(sorted(unknown))}")
        self.sources: dict[str, Expression | Selection[Any]] = {
            name: sources[name] if name in sources else _column(made, name, tables)
            for name in names
        }
        self._hints = hints
        self.expressions: list[Expression] = []
        for source in self.sources.values():
            self.expressions += source.expressions if isinstance(source, Selection) else [source]
        self.columns = ", ".join(expression.sql for expression in self.expressions)
        self.read: Callable[[Row], T] = self._compile()

    def read_all(self, rows: Iterable[Row]) -> list[T]:
        return list(map(self.read, rows))

    def _compile(self) -> Callable[[Row], T]:
        source = _Source()
        call = self._construct(source)
        text = f"def read(row):\n    {', '.join(source.columns)}, = row\n    return {call}\n"
        exec(text, source.names)
        read: Callable[[Row], T] = source.names["read"]
        return read

    def _construct(self, source: "_Source") -> str:
        """Write the expression that makes the value from the next columns of the row."""
        values = {
            name: (
                each._construct(source)
                if isinstance(each, Selection)
                else self._convert(source, name, each)
            )
            for name, each in self.sources.items()
        }
        if issubclass(self.made, tuple) and len(values) == len(_field_names(self.made)):
            # A quarter faster than the constructor of a named tuple.
            call = f"{source.name(tuple.__new__)}({source.name(self.made)}, ({_list(values)}))"
        else:
            arguments = ", ".join(f"{name}={value}" for name, value in values.items())
            call = f"{source.name(self.made)}({arguments})"
        if self.none_without is None:
            return call
        return f"None if {source.column_of(self, self.none_without)} is None else {call}"

    def _convert(self, source: "_Source", name: str, expression: Expression) -> str:
        column = source.next_column(self, name)
        where = f"{self.made.__name__}.{name} from {expression.sql}"
        if expression.decode is not None:
            return f"{source.name(expression.decode)}({column})"
        base, optional = _plain_type(self._hints[name])
        if expression.nullable and not optional and name not in self.filled:
            raise TypeError(f"{where}: the column may be null, the field may not be None")
        if not _fits(base, expression.base_type):
            raise TypeError(f"{where}: {expression.base_type} does not fit {base}")
        value = _conversion(source, base, column)
        if value != column and optional:
            value = f"None if {column} is None else {value}"
        return value


class _Source:
    """Generated source: the names of its columns, and the objects that it refers to."""

    def __init__(self) -> None:
        self.columns: list[str] = []
        self.names: dict[str, Any] = {"UUID": UUID, "parse_uuid": parse_uuid}
        self._fields: dict[tuple[int, str], str] = {}

    def next_column(self, selection: Selection[Any], field: str) -> str:
        column = f"c{len(self.columns)}"
        self.columns.append(column)
        self._fields[id(selection), field] = column
        return column

    def column_of(self, selection: Selection[Any], field: str) -> str:
        return self._fields[id(selection), field]

    def name(self, value: Any) -> str:
        name = f"v{len(self.names)}"
        self.names[name] = value
        return name


def _conversion(source: _Source, base: Any, column: str) -> str:
    if base is UUID:
        # Inline, because the call of a function would cost as much as the rest of the column.
        return f"({column} if isinstance({column}, UUID) else parse_uuid({column}))"
    if base is bool:
        return f"({column} != 0)"
    if issubclass(base, Enum):
        # By value: a lookup is ten times as fast as the enum's own.
        return f"{source.name({member.value: member for member in base})}[{column}]"
    return column


def _fits(base: Any, sql_type: str) -> bool:
    if not isinstance(base, type):
        return False
    python_type = _PYTHON_TYPES[sql_type]
    return base is python_type or (issubclass(base, Enum) and issubclass(base, python_type))


def _plain_type(hint: Any) -> tuple[Any, bool]:
    """The type without NewType and without None, and whether None is allowed."""
    optional = False
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        kinds = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
        optional = len(kinds) < len(typing.get_args(hint))
        hint = kinds[0] if len(kinds) == 1 else hint
    while isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    return hint, optional


def _field_names(made: type) -> Sequence[str]:
    if dataclasses.is_dataclass(made):
        return [field.name for field in dataclasses.fields(made)]
    names: Sequence[str] = getattr(made, "_fields")  # noqa: B009
    return names


def _column(made: type, field: str, tables: Sequence[Table]) -> Expression:
    for table in tables:
        if field in table:
            return table[field]
    names = ", ".join(table.name for table in tables)
    raise TypeError(f"{made.__name__}.{field} is no column of {names}")


def _list(values: Mapping[str, str]) -> str:
    return ", ".join(values.values()) + ","
