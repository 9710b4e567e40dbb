from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.block.rig import Rig

from stratalog.control.open import open_control_plane


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    control = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    rig = await Rig.on(control)
    yield rig
    await rig.close()
    await control.close()
