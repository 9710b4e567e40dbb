from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.topic.rig import TopicRig
from tests.unit.topic.tiered_kafka import Kafka

from stratalog.clock import SystemClock
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[TopicRig]:
    rig = await TopicRig.open(tmp_path)
    yield rig
    await rig.close()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ObjectStore]:
    (tmp_path / "tiered").mkdir()
    store = open_store(f"file:{tmp_path / 'tiered'}", {}, clock=SystemClock())
    yield store
    await store.close()


@pytest.fixture
def kafka(store: ObjectStore) -> Kafka:
    return Kafka(store)
