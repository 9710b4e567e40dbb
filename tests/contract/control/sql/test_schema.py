"""Every table is declared as the migrations make it."""

import pkgutil
from importlib import import_module

from stratalog import control
from stratalog.control.sql.database import Connection, Database, Row
from stratalog.control.sql.table import Table

POSTGRES_COLUMNS = """
    SELECT column_name, data_type, is_nullable = 'YES' FROM information_schema.columns
    WHERE table_schema = ANY (current_schemas(false)) AND table_name = $1
"""
SQLITE_COLUMNS = """
    SELECT name, lower(type), "notnull" = 0 AND pk = 0 FROM pragma_table_info($1)
"""


def declared_tables() -> dict[str, Table]:
    modules = [
        import_module(found.name)
        for found in pkgutil.walk_packages(control.__path__, "stratalog.control.")
    ]
    tables = [each for module in modules for each in vars(module).values()]
    return {table.name: table for table in tables if isinstance(table, Table)}


async def read_columns(connection: Connection, table: str, url: str) -> dict[str, str]:
    query = SQLITE_COLUMNS if url.startswith("sqlite") else POSTGRES_COLUMNS
    rows: list[Row] = await connection.fetch(query, table)
    return {name: f"{kind} null" if nullable else kind for name, kind, nullable in rows}


async def test_every_declared_table_has_the_columns_of_the_schema(database: Database) -> None:
    for name, table in declared_tables().items():

        async def work(connection: Connection, name: str = name) -> dict[str, str]:
            return await read_columns(connection, name, database.url)

        assert dict(table.columns) == await database.read(work), name


async def test_every_table_of_the_schema_is_declared(database: Database) -> None:
    rows = await database.read(lambda connection: connection.fetch("SELECT t.name FROM {tables}"))
    names = {name for (name,) in rows if not name.startswith("sqlite_")}
    assert names - {"schema_migrations"} == set(declared_tables())
