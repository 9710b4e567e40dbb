"""The driver when its process dies, and the run after that. Spark is the test's own
process."""

import pytest
from tests.unit.pipeline.failing_control import Crash, FailingControl
from tests.unit.pipeline.lab import PATIENT, Lab, expire_claims, using

from stratalog.control.topics.model import Topic
from stratalog.pipeline.plan.tasks import Task

_STEPS = [
    "pipeline.begin_run",
    "pipeline.aged_partitions",
    "pipeline.claim_ranges",
    "log.find_batches",
    "pipeline.begin_claims",
    "segments.add",
    "log.epochs",
    "segments.finish",
    "segments.chain",
    "pipeline.release_claims",
    "pipeline.save_run",
]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", _STEPS)
@pytest.mark.parametrize("janitor_first", [False, True])
async def test_a_killed_merge_is_finished_by_the_next_run_and_leaves_nothing(
    lab: Lab, step: str, when: str, janitor_first: bool
) -> None:
    topic = await lab.topic(2, segment_bytes="500")
    await lab.fill(topic)
    dying = FailingControl(lab.control)
    dying.crash_at = (step, when)
    with pytest.raises(Crash):
        await lab.run(control=dying)
    await lab.check(topic)
    await expire_claims(lab)
    if janitor_first:
        await lab.check_clean()
        await lab.check(topic)
    report = await lab.run()
    assert report.failed == {}
    assert [(await lab.state(topic, p)).block_start for p in range(2)] == [24, 24]
    await lab.check_clean()
    await lab.check(topic)


async def with_a_segment_left(lab: Lab) -> Topic:
    """A topic whose only segment was finished by a driver that died before it chained it."""
    topic = await lab.topic(1)
    await lab.fill(topic)
    dying = FailingControl(lab.control)
    dying.crash_at = ("segments.chain", "before")
    with pytest.raises(Crash):
        await lab.run(control=dying)
    return topic


async def test_a_segment_that_a_killed_driver_had_finished_is_chained_and_not_built_again(
    lab: Lab,
) -> None:
    topic = await with_a_segment_left(lab)
    [left] = await lab.control.segments.unchained(older_than_ms=0, limit=10)
    jobs = lab.jobs()
    await lab.run(jobs)
    assert await lab.segments(topic, 0) == [], "whoever has the claim may still chain it"
    await expire_claims(lab)
    await lab.run(jobs)
    assert jobs.bins == []
    [chained] = await lab.control.segments.chained(left.topic_partition, limit=10)
    assert chained.segment_id == left.segment_id
    await lab.check_clean()
    await lab.check(topic)


async def test_records_behind_a_segment_that_was_left_are_converted_by_the_same_run(
    lab: Lab,
) -> None:
    topic = await with_a_segment_left(lab)
    await expire_claims(lab)
    await lab.write(topic, {0: [3]})
    report = await lab.run()
    assert (report.segments, report.merged_partitions, report.failed) == (1, 1, {})
    assert await lab.segments(topic, 0) == [(0, 24), (24, 27)]
    await lab.check_clean()
    await lab.check(topic)


async def test_a_segment_that_was_left_where_records_were_deleted_holds_up_nobody(
    lab: Lab,
) -> None:
    topic = await with_a_segment_left(lab)
    await expire_claims(lab)
    await lab.write(topic, {0: [3]})
    await lab.delete_records(topic, 0, 24)
    report = await lab.run()
    assert (report.segments, report.failed) == (1, {})
    assert await lab.segments(topic, 0) == [(24, 27)]
    await lab.check_clean()
    await lab.check(topic)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "step",
    [
        "pipeline.claim_ranges",
        "pipeline.begin_claims",
        "pipeline.commit_split",
        "pipeline.release_claims",
    ],
)
async def test_a_killed_split_is_finished_by_the_next_run_and_leaves_nothing(
    lab: Lab, step: str, when: str
) -> None:
    using(lab, PATIENT)
    topic = await lab.topic(2)
    await lab.fill(topic)
    dying = FailingControl(lab.control)
    dying.crash_at = (step, when)
    with pytest.raises(Crash):
        await lab.run(control=dying)
    await lab.check(topic)
    await expire_claims(lab)
    await lab.run()
    assert [await lab.rows(topic, p) for p in range(2)] == [1, 1]
    await lab.check_clean()
    assert len(await lab.keys()) <= 2, "what was at work comes in files of its own"
    await lab.check(topic)


async def test_a_log_that_was_swept_before_its_segment_was_added_is_given_up(lab: Lab) -> None:
    topic = await lab.topic(1)
    await lab.fill(topic)
    jobs = lab.jobs()

    async def sweep(_: Task) -> None:
        await lab.clean()

    jobs.after = sweep
    report = await lab.run(jobs)
    assert (report.segments, list(report.failed), report.parked) == (0, ["orders-0"], [])
    await lab.check(topic)
    assert (await lab.run()).segments == 1
    await lab.check_clean()
    await lab.check(topic)
