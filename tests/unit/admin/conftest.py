from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.admin.office import Office, opened_office


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with opened_office(tmp_path) as office:
        yield office
