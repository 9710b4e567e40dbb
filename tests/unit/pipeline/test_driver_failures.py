"""The driver when data is damaged, or the store or the control plane fails."""

import asyncio
from dataclasses import replace
from typing import Any, TypeGuard, cast

import pytest
from tests.support.ledgers import Call
from tests.unit.pipeline.failing_control import FailingControl
from tests.unit.pipeline.lab import (
    EAGER,
    PATIENT,
    SPLIT,
    Lab,
    expire_claims,
    spoil,
    take_over,
    using,
)
from tests.unit.pipeline.local_jobs import LocalJobs

from stratalog.clock import SystemClock
from stratalog.control.errors import CommitInDoubtError, ControlUnavailableError
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.objects.errors import StoreAccessError
from stratalog.objects.faulty import Fault, FaultyStore
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.opening import stores
from stratalog.pipeline.errors import JobFailedError
from stratalog.pipeline.jobs import Bin, BinFailed, BinOutcome
from stratalog.pipeline.kinds.split_model import SplitTask
from stratalog.pipeline.plan.tasks import Task
from stratalog.testing.clock import ManualClock

ONE_SEGMENT_PER_TASK = replace(EAGER, task_bytes=1, max_segment_bytes=1)


async def test_a_corrupt_block_parks_its_partition_and_nothing_else(any_lab: Lab) -> None:
    lab = using(any_lab, replace(EAGER, max_attempts=2))
    topic = await lab.topic(3)
    await lab.fill(topic)
    bad = await lab.write(topic, {0: [2], 1: [2], 2: [2]})
    spoil(lab, bad, 1)
    report = await lab.run()
    assert report.segments == 2
    assert list(report.failed) == ["orders-1"]
    assert bad.commit.key in report.failed["orders-1"]
    assert report.parked == []
    assert (await lab.run()).parked == ["orders-1"]
    assert (await lab.run()).waiting == {"parked": 1}
    [status] = await lab.control.pipeline.tier_status({topic.id: 0})
    assert [unit.partition.partition for unit in status.parked] == [1]
    assert bad.commit.key in status.parked[0].error


async def test_segments_before_a_corrupt_block_are_kept(lab: Lab) -> None:
    topic = await lab.topic(1, segment_bytes="400")
    await lab.fill(topic)
    spoil(lab, await lab.write(topic, {0: [1]}), 0)
    report = await lab.run()
    assert report.segments > 1
    assert list(report.failed) == ["orders-0"]
    assert (await lab.state(topic, 0)).block_start > 0


async def test_nothing_behind_a_corrupt_block_is_begun_any_more(any_lab: Lab) -> None:
    lab = using(any_lab, ONE_SEGMENT_PER_TASK)
    topic = await lab.topic(1)
    spoil(lab, await lab.write(topic, {0: [3]}), 0)
    for _ in range(20):
        await lab.write(topic, {0: [3]})
    jobs, watched = lab.jobs(), FailingControl(lab.control)
    report = await lab.run(jobs, control=watched)
    assert (report.segments, list(report.failed)) == (0, ["orders-0"])
    assert len(jobs.bins) == watched.calls.count("pipeline.begin_claims") == 1
    assert len(await lab.keys("segments/")) <= 1, "of what was begun with it"
    [aged] = await lab.control.pipeline.aged_partitions({topic.id: 0})
    assert (aged.claimed, aged.attempts) == (False, 1)


async def test_what_is_left_out_behind_a_corrupt_block_costs_its_neighbours_nothing(
    lab: Lab,
) -> None:
    using(lab, ONE_SEGMENT_PER_TASK)
    topic = await lab.topic(3)
    for number in range(5):
        block = await lab.write(topic, {p: [3] for p in range(3)})
        if number == 2:
            spoil(lab, block, 0)
    jobs = lab.jobs()
    report = await lab.run(jobs)
    assert (report.segments, list(report.failed)) == (2 + 5 + 5, ["orders-0"])
    assert [await lab.segments(topic, p) for p in range(3)] == [
        [(0, 3), (3, 6)],
        *[[(base, base + 3) for base in range(0, 15, 3)]] * 2,
    ]
    done = [rows[0] for work in jobs.bins for task in work.tasks for rows in task.row_lists]
    assert [row.base_offset for row in done if row.partition == 0] == [0, 3, 6, 9]
    await lab.check_clean()


async def test_segments_before_a_corrupt_block_are_repeated_although_it_is_known(lab: Lab) -> None:
    using(lab, ONE_SEGMENT_PER_TASK)
    topic = await lab.topic(1)
    for _ in range(4):
        await lab.write(topic, {0: [3]})
    spoil(lab, await lab.write(topic, {0: [3]}), 0)
    for _ in range(4):
        await lab.write(topic, {0: [3]})
    jobs = lab.jobs()

    def fail(work: Bin) -> BinOutcome | None:
        first_time = len(jobs.bins) == 2
        died = BinFailed(work=work, error=JobFailedError("the worker died"))
        return died if first_time else None

    jobs.fail = fail
    report = await lab.run(jobs)
    assert await lab.segments(topic, 0) == [(base, base + 3) for base in range(0, 12, 3)]
    assert "CRC" in report.failed["orders-0"]
    await lab.check_clean()


async def test_a_corrupt_block_costs_a_split_file_no_other_file(lab: Lab) -> None:
    using(lab, replace(PATIENT, split_file_bytes=2000))
    topic = await lab.topic(2)
    spoil(lab, await lab.write(topic, {0: [3], 1: [3]}), 0)
    for _ in range(49):
        await lab.write(topic, {0: [3], 1: [3]})
    jobs = lab.jobs()
    report = await lab.run(jobs, SPLIT)
    assert list(report.failed) == ["orders-0"]
    parts = [len(task.parts) for work in jobs.bins for task in work.tasks if is_split(task)]
    assert len(parts) > 3
    assert set(parts) == {2}
    assert await lab.rows(topic, 0) < 50
    await lab.check_clean()


async def test_no_split_file_is_begun_under_a_lost_claim(lab: Lab) -> None:
    using(lab, replace(PATIENT, split_file_bytes=2000))
    topic = await lab.topic(2)
    for _ in range(50):
        await lab.write(topic, {0: [3], 1: [3]})
    jobs, watched = lab.jobs(), FailingControl(lab.control)
    clock = ManualClock(SystemClock().now_ms())

    async def lose_claims(_: Task) -> None:
        await take_over(lab, topic)
        await clock.advance(EAGER.splitter_claim_duration_ms / 1000)
        await watched.answered["pipeline.renew_claims"].wait()

    jobs.after = lose_claims
    async with lab.driver(jobs, control=watched, clock=clock) as driver:
        report = await driver.run(SPLIT)
    assert (report.split_files, report.overtaken) == (0, 2)
    assert [work.name for work in jobs.bins] == ["split 1 of 4"]
    await lab.check(topic)


def is_split(task: Task) -> TypeGuard[SplitTask]:
    return isinstance(task, SplitTask)


async def test_a_corrupt_block_costs_a_split_only_its_own_part(lab: Lab) -> None:
    using(lab, PATIENT)
    topic = await lab.topic(3)
    await lab.fill(topic)
    spoil(lab, await lab.write(topic, {0: [2], 1: [2], 2: [2]}), 1)
    report = await lab.run()
    assert report.split_partitions == 2
    assert list(report.failed) == ["orders-1"]
    assert [await lab.rows(topic, p) for p in range(3)] == [1, 7, 1]


class Down:
    """Answers 503 to every read of a block, once all retries are used up."""

    def next(self, operation: str, key: str) -> Fault | None:
        return Fault.UNAVAILABLE if operation == "get_ranges" else None


async def test_a_store_that_does_not_answer_parks_nobody(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    using(lab, replace(EAGER, max_attempts=1))
    topic = await lab.topic()
    await lab.fill(topic)

    def open_faulty(url: str, *args: object, **rest: object) -> ObjectStore:
        inner = open_store(url, *args, **rest)  # type: ignore[arg-type]
        return FaultyStore(inner, Down(), clock=ManualClock())

    with monkeypatch.context() as broken:
        broken.setattr(stores, "open_store", open_faulty)
        report = await lab.run()
    assert (report.segments, report.parked) == (0, [])
    assert set(report.failed) == {"orders-0", "orders-1"}
    assert (await lab.run()).segments == 2
    await lab.check_clean()
    await lab.check(topic)


class Refusing:
    """A store that gives one object to no reader, as if it were in an archive."""

    def __init__(self, inner: ObjectStore, key: str) -> None:
        self._inner = inner
        self._key = key

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def get_ranges(self, key: str, *args: object, **rest: object) -> object:
        if key == self._key:
            raise StoreAccessError("403 InvalidObjectState")
        return await self._inner.get_ranges(key, *args, **rest)  # type: ignore[arg-type]


async def with_a_refused_partition(lab: Lab, **limits: int) -> tuple[Topic, LocalJobs]:
    """The first partition has the oldest rows, more than a run may take, and never succeeds."""
    using(lab, replace(EAGER, max_attempts=2, **limits))  # type: ignore[arg-type]
    topic = await lab.topic(3)
    refused = await lab.write(topic, {0: [3]})
    for _ in range(20):
        await lab.write(topic, {0: [3]})
    for _ in range(3):
        await lab.write(topic, {1: [3], 2: [3]})
    jobs = lab.jobs()
    jobs.wrap = lambda store: cast(ObjectStore, Refusing(store, refused.commit.key))
    return topic, jobs


@pytest.mark.parametrize("limits", [{"max_bytes_per_run": 1500}, {"max_batches_per_run": 10}])
async def test_what_fails_without_being_counted_keeps_nobody_else_waiting(
    any_lab: Lab, limits: dict[str, int]
) -> None:
    lab = any_lab
    topic, jobs = await with_a_refused_partition(lab, **limits)
    report = await lab.run(jobs)
    assert (report.segments, list(report.failed), report.parked) == (0, ["orders-0"], [])
    report = await lab.run(jobs)
    assert (report.segments, report.failed) == (2, {})
    assert report.waiting == {"for the next run": 1}
    for _ in range(3):
        assert list((await lab.run(jobs)).failed) == ["orders-0"], "it is tried, and never parked"
    assert (await lab.run()).failed == {}
    [aged] = await lab.control.pipeline.aged_partitions({topic.id: 0})
    assert (aged.failed_ms, aged.first_offset > 0) == (None, True)


async def test_until_idle_runs_go_on_to_others_after_one_that_failed(lab: Lab) -> None:
    topic, jobs = await with_a_refused_partition(lab, max_bytes_per_run=1500)
    async with lab.driver(jobs) as driver:
        report = await driver.run_until_idle()
    assert (report.segments, list(report.failed)) == (2, ["orders-0"])
    assert [await lab.rows(topic, p) for p in range(3)] == [21, 0, 0]


async def test_what_was_overtaken_or_ended_is_not_put_back_behind_others(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    jobs = lab.jobs()
    jobs.after = lambda task: take_over(lab, topic)
    assert (await lab.run(jobs)).overtaken == 2
    await expire_claims(lab)

    async def end(_: Task) -> None:
        raise asyncio.CancelledError

    jobs.after = end
    with pytest.raises(asyncio.CancelledError):
        await lab.run(jobs)
    aged = await lab.control.pipeline.aged_partitions({topic.id: 0})
    assert [(each.claimed, each.failed_ms) for each in aged] == [(False, None)] * 2


@pytest.mark.parametrize(
    "method", ["segments.add", "segments.finish", "segments.chain", "log.epochs"]
)
async def test_a_control_plane_that_fails_once_parks_nobody(lab: Lab, method: str) -> None:
    using(lab, replace(EAGER, max_attempts=1))
    topic = await lab.topic()
    await lab.fill(topic)
    watched = FailingControl(lab.control)
    watched.errors[method] = ControlUnavailableError("made to fail")
    report = await lab.run(control=watched)
    assert report.parked == []
    assert await lab.control.segments.unchained(older_than_ms=0, limit=10) == []
    await lab.run()
    assert [await lab.segments(topic, p) for p in range(2)] == [[(0, 24)]] * 2
    await lab.check_clean()
    await lab.check(topic)


async def test_until_idle_what_a_later_run_converts_is_no_failure(lab: Lab) -> None:
    topic = await lab.topic(6)
    await lab.fill(topic)
    watched = FailingControl(lab.control)
    watched.errors["segments.add"] = ControlUnavailableError("made to fail")
    async with lab.driver(control=watched) as driver:
        report = await driver.run_until_idle()
    assert (report.segments, report.failed) == (6, {})
    assert "done" not in report.to_json()


async def test_until_idle_what_no_run_converts_is_a_failure(lab: Lab) -> None:
    topic = await lab.topic(2, segment_bytes="400")
    await lab.fill(topic)
    spoil(lab, await lab.write(topic, {0: [1], 1: [1]}), 1)
    async with lab.driver() as driver:
        report = await driver.run_until_idle()
    assert list(report.failed) == ["orders-1"]


@pytest.mark.parametrize("method", ["segments.chain", "pipeline.commit_split"])
async def test_doubt_about_a_commit_is_settled_by_repeating_it(lab: Lab, method: str) -> None:
    using(lab, EAGER if method == "segments.chain" else PATIENT)
    topic = await lab.topic()
    await lab.fill(topic)
    doubtful = InDoubt(lab.control, method)
    report = await lab.run(control=doubtful)
    assert report.failed == {}
    assert report.segments + report.split_partitions == 2
    await lab.check_clean()
    await lab.check(topic)


class InDoubt(FailingControl):
    """The answer to one call is lost, after it has taken effect."""

    def __init__(self, inner: ControlPlane, method: str) -> None:
        super().__init__(inner)
        self._method = method

    async def around(self, name: str, call: Call) -> Any:
        answer = await super().around(name, call)
        if name == self._method:
            self._method = ""
            raise CommitInDoubtError("made to lose its answer")
        return answer
