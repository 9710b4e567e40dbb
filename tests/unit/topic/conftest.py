from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.topic.rig import TopicRig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[TopicRig]:
    rig = await TopicRig.open(tmp_path)
    yield rig
    await rig.close()
