from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.scan.rig import ScanRig, scan_rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[ScanRig]:
    async with scan_rig(tmp_path) as rig:
        yield rig
