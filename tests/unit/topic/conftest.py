from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.topic.rig import TopicRig
from tests.unit.topic.tiered_kafka import Kafka

from stratalog.block import writer as writer_module
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


@pytest.fixture(autouse=True)
def patient_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stands still on a test's clock, but calls take real time, and longer on a busy
    machine."""
    monkeypatch.setattr(writer_module, "_LEAST_S", 20.0)
