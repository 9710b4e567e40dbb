"""A control plane on each of the databases that it supports."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
from tests.support.servers import PostgresServer

from stratalog.control.open import open_control_plane, open_database
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database
from stratalog.control.topics.model import Topic


@pytest.fixture(scope="session")
def control_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """One database for all tests, each of which finds it empty: a fresh one takes a second."""
    dsn = postgres_server.create_database()
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.fixture(params=["sqlite", "postgresql"])
async def control_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'below' / 'control.db'}"
    dsn: str = request.getfixturevalue("control_dsn")
    await empty(dsn)
    return dsn


async def empty(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    for (table,) in tables:
        if table != "schema_migrations":
            await connection.execute(f"DELETE FROM {table}")
    await connection.close()


@pytest.fixture
async def plane(control_url: str) -> AsyncIterator[ControlPlane]:
    opened = await open_control_plane(control_url)
    yield opened
    await opened.close()


@pytest.fixture
async def other(control_url: str, plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    """A second broker's connections to the same database."""
    opened = await open_control_plane(control_url)
    yield opened
    await opened.close()


@pytest.fixture
async def database(control_url: str, plane: ControlPlane) -> AsyncIterator[Database]:
    """The same database, to look under the hood and to move time, which no operation offers."""
    opened = await open_database(control_url)
    yield opened
    await opened.close()


@pytest.fixture
async def topic(plane: ControlPlane) -> Topic:
    return await plane.topics.create("events", partition_count=3, configs={})


@pytest.fixture
async def server(control_dsn: str) -> AsyncIterator[ControlPlane]:
    """A control plane on PostgreSQL, for tests of its locks."""
    await empty(control_dsn)
    plane = await open_control_plane(control_dsn)
    yield plane
    await plane.close()
