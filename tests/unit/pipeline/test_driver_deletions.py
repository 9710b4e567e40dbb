"""The driver when records or topics are deleted in the middle of a run."""

from dataclasses import replace

import pytest
from tests.unit.pipeline.lab import (
    EAGER,
    PATIENT,
    Lab,
    using,
)

from stratalog.settings import TieringSettings


@pytest.mark.parametrize("tiering", [EAGER, PATIENT])
@pytest.mark.parametrize("offset", [1, 6, 23, 24])
async def test_records_deleted_in_mid_run_never_come_back(
    any_lab: Lab, tiering: TieringSettings, offset: int
) -> None:
    lab = using(any_lab, replace(tiering, task_bytes=1 << 20))
    topic = await lab.topic()
    await lab.fill(topic)
    jobs = lab.jobs()
    jobs.after = lambda task: lab.delete_records(topic, 0, offset)
    report = await lab.run(jobs)
    assert report.failed == {}
    await lab.check(topic)
    await lab.run()
    await lab.check_clean()
    await lab.check(topic)


async def test_what_is_left_after_a_deletion_in_mid_merge_is_chained(lab: Lab) -> None:
    topic = await lab.topic(1, segment_bytes="400")
    await lab.fill(topic)
    jobs = lab.jobs()
    jobs.after = lambda task: lab.delete_records(topic, 0, 14)
    report = await using(lab, replace(EAGER, task_bytes=1 << 20)).run(jobs)
    assert report.segments > 0
    segments = await lab.segments(topic, 0)
    assert segments[0][0] <= 14 < segments[0][1]
    assert segments[-1][1] == 24
    await lab.check_clean()
    await lab.check(topic)


@pytest.mark.parametrize("tiering", [EAGER, PATIENT])
async def test_a_topic_deleted_in_mid_run_stays_deleted(
    any_lab: Lab, tiering: TieringSettings
) -> None:
    lab = using(any_lab, replace(tiering, task_bytes=1 << 20))
    topic = await lab.topic()
    await lab.fill(topic)
    jobs = lab.jobs()
    jobs.after = lambda task: lab.control.topics.delete(topic.id)
    report = await lab.run(jobs)
    assert (report.segments, report.split_files, report.failed) == (0, 0, {})
    await lab.check_clean()
    assert await lab.keys() == []
