from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.block.rig import Rig

from stratalog.block import writer as writer_module
from stratalog.control.open import open_control_plane


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    control = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    rig = await Rig.on(control)
    yield rig
    await rig.close()
    await control.close()


@pytest.fixture(autouse=True)
def patient_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stands still on a test's clock, but calls take real time, and longer on a busy
    machine."""
    monkeypatch.setattr(writer_module, "_LEAST_S", 20.0)
