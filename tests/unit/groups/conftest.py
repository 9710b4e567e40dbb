"""Brokers of one control plane, on a clock that is moved by hand."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.groups.rig import Node

from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.testing.clock import ManualClock


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    opened = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    yield opened
    await opened.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def node(plane: ControlPlane, clock: ManualClock) -> AsyncIterator[Node]:
    started = await Node.start(plane, clock, 1)
    yield started
    await started.stop()


@pytest.fixture
async def other(plane: ControlPlane, clock: ManualClock, node: Node) -> AsyncIterator[Node]:
    started = await Node.start(plane, clock, 2)
    yield started
    await started.stop()
