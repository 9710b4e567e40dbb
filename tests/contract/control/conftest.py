"""A control plane on each of the databases that it supports."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stratalog.control.database import Database
from stratalog.control.model import Topic
from stratalog.control.open import open_control_plane, open_database
from stratalog.control.plane import ControlPlane


@pytest.fixture(params=["sqlite", "postgresql"])
def control_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'below' / 'control.db'}"
    dsn: str = request.getfixturevalue("postgres_dsn")
    return dsn


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
    """The same database, for what no operation offers: looking under the hood, moving time."""
    opened = await open_database(control_url)
    yield opened
    await opened.close()


@pytest.fixture
async def topic(plane: ControlPlane) -> Topic:
    return await plane.create_topic("events", partition_count=3, configs={})
