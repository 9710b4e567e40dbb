"""The parts of SQL that the two databases spell differently.

Pure: text and arguments in, text and arguments out.
"""

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

from stratalog.control.sql.database import Rows, Shape

_PARAMETER = re.compile(r"\$(\d+)")
_LOCKED_TABLE = re.compile(r"\{for_update_of (\w+)\}")
_SOURCE_COLUMN = re.compile(r"\br\.(\w+)")
_FROM_ROWS = re.compile(r"\bFROM \{rows\}\s")
_INSERTED_ROWS = re.compile(r"\bSELECT (.*) FROM \{rows\} WHERE true")


class PostgresDialect:
    _TOKENS = (
        ("{now_ms}", "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"),
        (
            "{tables}",
            "(SELECT tablename AS name FROM pg_tables"
            " WHERE schemaname = ANY (current_schemas(false))) AS t",
        ),
        (
            "{columns}",
            "(SELECT tables.relname::text AS table_name, attributes.attname::text AS column_name,"
            " format_type(attributes.atttypid, NULL) AS type_name,"
            " attributes.attnum::integer AS position,"
            # The numbers of a key's columns, counted from 0; 0 is then no part of the key.
            " COALESCE(array_position(keys.indkey::smallint[], attributes.attnum) + 1, 0)"
            " AS key_position FROM pg_class AS tables"
            " JOIN pg_attribute AS attributes ON attributes.attrelid = tables.oid"
            " AND attributes.attnum > 0 AND NOT attributes.attisdropped"
            " LEFT JOIN pg_index AS keys ON keys.indrelid = tables.oid AND keys.indisprimary"
            " WHERE tables.relkind = 'r' AND tables.relnamespace IN"
            " (SELECT oid FROM pg_namespace WHERE nspname = ANY (current_schemas(false)))) AS c",
        ),
        ("{for_update}", "FOR UPDATE"),
        ("{for_update_skip_locked}", "FOR UPDATE SKIP LOCKED"),
    )
    _LOCK_OF = r"FOR UPDATE OF \1"

    @staticmethod
    @lru_cache(maxsize=512)
    def render(sql: str, shape: Shape | None, first: int) -> str:
        """The statement, with the row source's arrays as parameters from number `first` on."""
        if shape is not None:
            names = ", ".join(shape.names)
            sql = sql.replace("{rows}", f"unnest({_arrays(shape, first)}) AS r({names})")
        return _fill(sql, PostgresDialect._TOKENS, PostgresDialect._LOCK_OF)

    @staticmethod
    @lru_cache(maxsize=64)
    def render_each(sql: str, shape: Shape) -> str:
        """The query as a lateral join, led by the number of the source row, from 1."""
        names = ", ".join(shape.names)
        inner = _fill(sql, PostgresDialect._TOKENS, PostgresDialect._LOCK_OF)
        return (
            f"SELECT r.source_row, q.* FROM unnest({_arrays(shape, 1)}) WITH ORDINALITY"
            f" AS r({names}, source_row) CROSS JOIN LATERAL ({inner}) q"
        )

    @staticmethod
    def columns(rows: Rows) -> list[Sequence[Any]]:
        """The rows turned into one array per column."""
        if not rows.values:
            return [() for _ in rows.shape.names]
        return list(zip(*rows.values, strict=True))


class SqliteDialect:
    _TOKENS = (
        # A function of the connection, so that the clock can be given (see `sqlite.py`).
        ("{now_ms}", "now_ms()"),
        ("{tables}", "(SELECT name FROM sqlite_master WHERE type = 'table') AS t"),
        (
            "{columns}",
            "(SELECT m.name AS table_name, p.name AS column_name, lower(p.type) AS type_name,"
            " p.cid AS position, p.pk AS key_position"
            " FROM sqlite_master AS m, pragma_table_info(m.name) AS p"
            " WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%') AS c",
        ),
        ("{for_update}", ""),
        ("{for_update_skip_locked}", ""),
    )
    _LOCK_OF = ""

    @staticmethod
    @lru_cache(maxsize=512)
    def render(sql: str, shape: Shape | None, first: int) -> str:
        """The statement, with the row source as one JSON parameter of number `first`."""
        sql = _PARAMETER.sub(r"?\1", sql)
        if shape is not None:
            columns = ", ".join(map(_json_column, range(len(shape.names)), *shape))
            sql = sql.replace("{rows}", f"(SELECT {columns} FROM json_each(?{first})) AS r")
        return _fill(sql, SqliteDialect._TOKENS, SqliteDialect._LOCK_OF)

    @staticmethod
    @lru_cache(maxsize=64)
    def render_each(sql: str, shape: Shape) -> str:
        """The query with the source's columns as parameters: SQLite has no lateral join."""
        sql = _SOURCE_COLUMN.sub(lambda m: f"?{shape.names.index(m[1]) + 1}", sql)
        return _fill(sql, SqliteDialect._TOKENS, SqliteDialect._LOCK_OF)

    @staticmethod
    @lru_cache(maxsize=64)
    def render_row(sql: str, shape: Shape) -> str:
        """The statement for a single row, with the source's columns as parameters."""
        sql = _FROM_ROWS.sub("", _INSERTED_ROWS.sub(r"VALUES (\1)", sql))
        return SqliteDialect.render_each(sql, shape)

    @staticmethod
    def json(rows: Rows) -> str:
        return _ENCODER.encode(SqliteDialect.values(rows))

    @staticmethod
    def values(rows: Rows) -> Sequence[Sequence[Any]]:
        """The rows with ids as text, column by column: the rows of a block name the same ids."""
        if "uuid" not in rows.shape.types or not rows.values:
            return rows.values
        columns = zip(*rows.values, strict=True)
        return list(
            zip(
                *(
                    map(_text_of_id, column) if kind == "uuid" else column
                    for kind, column in zip(rows.shape.types, columns, strict=True)
                ),
                strict=True,
            )
        )

    @staticmethod
    def arguments(values: Sequence[Any]) -> list[Any]:
        return [str(value) if isinstance(value, UUID) else value for value in values]


def _arrays(shape: Shape, first: int) -> str:
    return ", ".join(f"${first + i}::{kind}[]" for i, kind in enumerate(shape.types))


def _json_column(index: int, name: str, kind: str) -> str:
    extract = f"json_extract(value, '$[{index}]')"
    return f"from_hex({extract}) AS {name}" if kind == "bytea" else f"{extract} AS {name}"


@lru_cache(maxsize=65536)
def _text_of_id(value: UUID | None) -> str | None:
    return None if value is None else str(value)


def _json_value(value: Any) -> str:
    return bytes(value).hex() if isinstance(value, bytes | memoryview) else str(value)


_ENCODER = json.JSONEncoder(default=_json_value)


def _fill(sql: str, tokens: Sequence[tuple[str, str]], lock_of: str) -> str:
    for token, text in tokens:
        sql = sql.replace(token, text)
    return _LOCKED_TABLE.sub(lock_of, sql)
