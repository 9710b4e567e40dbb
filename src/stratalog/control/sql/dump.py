"""The rows of all tables as text, the same from either database, and back.

A dump is one snapshot, read a page at a time in the order of the primary keys. It goes to files
and not to the caller, because work on a snapshot waits for nothing but its statements. A row is one
line: a JSON array of its values, in the order of the columns; bytes are in base 64. So a dump of
SQLite fills a PostgreSQL database, and the other way round.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol
from uuid import UUID

from stratalog.control.errors import ControlDamagedError, SchemaNewerError
from stratalog.control.sql.database import Connection, Database, Row, Rows, Shape
from stratalog.control.sql.migrate import applied_migrations, known_numbers, known_tables

PAGE_ROWS = 2000
"""Rows of one statement: a few megabytes at the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    name: str
    type: str
    """PostgreSQL's name of the type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumns:
    """A table as the database describes it."""

    name: str
    columns: Sequence[Column]
    key: Sequence[str]
    """The columns of the primary key, in its order."""


class RowSink(Protocol):
    """Takes the lines of one table after the other."""

    def begin(self) -> None:
        """Drop all that was taken: the snapshot was lost, and another begins."""

    def table(self, table: TableColumns) -> None: ...

    def rows(self, lines: Iterable[bytes]) -> None: ...


async def dump(database: Database, sink: RowSink) -> list[int]:
    """Write all tables of one snapshot into the sink; return the numbers of its migrations."""
    known, tables = known_numbers(database), known_tables(database)

    async def work(connection: Connection) -> list[int]:
        sink.begin()
        applied = await applied_migrations(connection)
        if not known.issuperset(applied):
            raise SchemaNewerError(
                f"the schema of {database.url} is newer than this version: use the newer version"
            )
        for table in await tables_of(connection):
            # The database may hold tables of others, too.
            if table.name not in tables:
                continue
            sink.table(table)
            encode = row_encoder(table.columns)
            after: Row | None = None
            while rows := await _page(connection, table, after):
                sink.rows(map(encode, rows))
                after = tuple(rows[-1])
        return applied

    return await database.read(work)


async def tables_of(connection: Connection) -> list[TableColumns]:
    rows = await connection.fetch(
        "SELECT c.table_name, c.column_name, c.type_name, c.key_position FROM {columns}"
        " ORDER BY c.table_name, c.position"
    )
    tables: dict[str, list[Row]] = {}
    for row in rows:
        tables.setdefault(row[0], []).append(row)
    return [
        TableColumns(
            name=name,
            columns=[Column(name=row[1], type=row[2]) for row in columns],
            key=[row[1] for row in sorted(columns, key=lambda row: int(row[3])) if row[3]],
        )
        for name, columns in tables.items()
    ]


async def load_table(
    connection: Connection, name: str, columns: Sequence[Column], lines: Iterable[bytes]
) -> int:
    """Insert the lines of a dump; return how many there were."""
    shape = Shape(tuple(each.name for each in columns), tuple(each.type for each in columns))
    names = ", ".join(shape.names)
    values = ", ".join(f"r.{each}" for each in shape.names)
    insert = f"INSERT INTO {name} ({names}) SELECT {values} FROM {{rows}}"
    decode = row_decoder(columns)
    remaining = iter(lines)
    inserted = 0
    while page := [decode(line) for line in islice(remaining, PAGE_ROWS)]:
        await connection.execute(insert, rows=Rows(shape, page))
        inserted += len(page)
    return inserted


async def _page(connection: Connection, table: TableColumns, after: Row | None) -> list[Row]:
    names = ", ".join(column.name for column in table.columns)
    key = ", ".join(table.key)
    if after is None:
        return await connection.fetch(
            f"SELECT {names} FROM {table.name} ORDER BY {key} LIMIT $1", PAGE_ROWS
        )
    places = [column.name for column in table.columns]
    last = [after[places.index(each)] for each in table.key]
    parameters = ", ".join(f"${2 + index}" for index in range(len(last)))
    return await connection.fetch(
        f"SELECT {names} FROM {table.name} WHERE ({key}) > ({parameters}) ORDER BY {key} LIMIT $1",
        PAGE_ROWS,
        *last,
    )


def row_encoder(columns: Sequence[Column]) -> Callable[[Row], bytes]:
    encoders = [_ENCODERS.get(column.type) for column in columns]
    special = [(index, encode) for index, encode in enumerate(encoders) if encode is not None]

    def encode_row(row: Row) -> bytes:
        values = list(row)
        for index, encode in special:
            if values[index] is not None:
                values[index] = encode(values[index])
        return json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"

    return encode_row


def row_decoder(columns: Sequence[Column]) -> Callable[[bytes], list[Any]]:
    encoded = [index for index, column in enumerate(columns) if column.type == "bytea"]

    def decode_row(line: bytes) -> list[Any]:
        try:
            values = json.loads(line)
            for index in encoded:
                if values[index] is not None:
                    values[index] = b64decode(values[index], validate=True)
        except (ValueError, TypeError, IndexError, RecursionError) as error:
            raise ControlDamagedError(f"a row of the backup cannot be read: {error!r}") from error
        if not isinstance(values, list) or len(values) != len(columns):
            raise ControlDamagedError(f"a row of the backup has not {len(columns)} values")
        return values

    return decode_row


def as_mappings(columns: Sequence[Column], lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    decode = row_decoder(columns)
    for line in lines:
        yield dict(zip((column.name for column in columns), decode(line), strict=True))


def _encode_bytes(value: bytes | memoryview) -> str:
    return b64encode(value).decode()


def _encode_uuid(value: UUID | str) -> str:
    return str(value)


_ENCODERS: Mapping[str, Callable[[Any], object]] = {
    "bytea": _encode_bytes,
    "uuid": _encode_uuid,
    "boolean": bool,
}
