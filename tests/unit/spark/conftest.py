"""Fixtures of the tests of Spark readers."""

import pytest
from tests.unit.spark.streams import FakePlanner

from stratalog.opening.stores import StoreAddresses
from stratalog.opening.workers import WorkerAccess
from stratalog.spark import stream_reader


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> FakePlanner:
    fake = FakePlanner()
    monkeypatch.setattr(stream_reader, "resolve", fake.resolve)
    monkeypatch.setattr(stream_reader, "plan", fake.plan)
    monkeypatch.setattr(stream_reader, "release", fake.release)
    monkeypatch.setattr(
        stream_reader,
        "worker_access_of",
        lambda options: WorkerAccess(stores=StoreAddresses(objects_url="")),
    )
    return fake
