"""Control planes for drivers: SQLite always, PostgreSQL where the difference matters."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.pipeline.lab import EAGER, Lab


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with Lab.open(tmp_path, tiering=EAGER) as lab:
        yield lab


@pytest.fixture(params=["sqlite", "postgresql"])
async def any_lab(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Lab]:
    url = None if request.param == "sqlite" else request.getfixturevalue("postgres_dsn")
    async with Lab.open(tmp_path, control_url=url, tiering=EAGER) as lab:
        yield lab
