"""Which session jobs get, with sessions that only pretend to be Spark's."""

from typing import cast
from uuid import uuid4

import pytest
from tests.unit.pipeline.spark_tasks import WORKPLACE

from stratalog.clock import SystemClock
from stratalog.pipeline.hosting import job_runner, session
from stratalog.pipeline.hosting.session import OpenSpark
from stratalog.pipeline.hosting.spark_conf import SparkOptions
from stratalog.pipeline.hosting.spark_jobs import SparkJobs
from stratalog.pipeline.workplace import Workplace


class Pretended:
    def __init__(self) -> None:
        self.alive = True
        self.ended: list[str] = []

    def is_alive(self) -> bool:
        return self.alive

    def close(self) -> None:
        self.ended.append("closed")

    def drop(self) -> None:
        self.ended.append("dropped")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Pretended]:
    """All sessions that were opened, in their order."""
    sessions: list[Pretended] = []

    def open_session(_: SparkOptions) -> OpenSpark:
        sessions.append(Pretended())
        return cast(OpenSpark, sessions[-1])

    monkeypatch.setattr(session, "open_session", open_session)
    return sessions


@pytest.fixture
def spark() -> SparkJobs:
    return SparkJobs(
        SparkOptions(master="local[1]"), WORKPLACE, clock=SystemClock(), executor_wait_ms=60_000
    )


async def test_a_session_that_lives_is_kept_for_the_next_jobs(
    spark: SparkJobs, opened: list[Pretended]
) -> None:
    for _ in range(2):
        async with spark.open():
            pass
    await spark.close()
    assert [each.ended for each in opened] == [["closed"]]


async def test_a_session_that_died_is_replaced(spark: SparkJobs, opened: list[Pretended]) -> None:
    async with spark.open():
        pass
    opened[0].alive = False
    async with spark.open():
        pass
    assert [each.ended for each in opened] == [["dropped"], []]


async def test_a_session_with_which_nothing_works_is_replaced(
    spark: SparkJobs, opened: list[Pretended]
) -> None:
    async with spark.open() as jobs:
        jobs.distrust()
    assert not spark.is_open
    async with spark.open():
        pass
    assert [each.ended for each in opened] == [["dropped"], []]


async def test_workers_are_told_whose_stores_they_must_see(
    spark: SparkJobs, opened: list[Pretended], monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[Workplace] = []
    monkeypatch.setattr(job_runner, "row_function", lambda run_task, place: places.append(place))
    cluster_id = uuid4()
    async with spark.open(cluster_id):
        pass
    assert places == [WORKPLACE.of_cluster(cluster_id)]
