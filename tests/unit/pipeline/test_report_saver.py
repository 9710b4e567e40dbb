import asyncio
from dataclasses import replace

from tests.unit.pipeline.dying_process import DyingProcess, dying
from tests.unit.pipeline.failing_control import FailingControl
from tests.unit.pipeline.lab import EAGER, Lab, using

from stratalog.clock import SystemClock
from stratalog.pipeline.plan.tasks import Task
from stratalog.pipeline.report import Report
from stratalog.pipeline.report_saver import SAVE_SECONDS, saved_meanwhile
from stratalog.testing.clock import ManualClock


class OftenSaving(SystemClock):
    async def sleep(self, seconds: float) -> None:
        await super().sleep(0.001 if seconds == SAVE_SECONDS else seconds)


async def test_a_report_that_has_changed_is_saved_now_and_then(lab: Lab) -> None:
    clock, watched, report = (
        ManualClock(SystemClock().now_ms()),
        FailingControl(lab.control),
        Report(),
    )
    run = await lab.control.pipeline.begin_run("test")
    async with saved_meanwhile(watched, run.run_id, report, clock):
        await asyncio.sleep(0)
        await clock.advance(SAVE_SECONDS)
        assert watched.calls == []
        report.segments = 3
        await clock.advance(SAVE_SECONDS)
        await watched.answered["pipeline.save_run"].wait()
        await clock.advance(3 * SAVE_SECONDS)
    assert watched.calls == ["pipeline.save_run"]
    [saved] = await lab.control.pipeline.runs(limit=1)
    assert saved.report == replace(report, seconds=2 * SAVE_SECONDS).to_json()
    assert saved.finished_ms is None


async def test_a_driver_that_is_killed_leaves_what_it_has_committed_in_the_history(
    lab: Lab,
) -> None:
    using(lab, replace(EAGER, task_bytes=1))
    topic = await lab.topic(4)
    await lab.fill(topic)
    mortal, jobs = DyingProcess("none of them"), lab.jobs()

    async def be_killed_when_something_was_told(_: Task) -> None:
        if len(jobs.bins) > 1:
            while not (await lab.control.pipeline.runs(limit=1))[0].report.get("segments"):
                continue
            raise mortal.die("a killed driver")

    jobs.before = be_killed_when_something_was_told
    control = mortal.control(lab.control)
    async with lab.driver(jobs, control=control, clock=OftenSaving()) as driver:
        with dying():
            await driver.run()
    [run] = await lab.control.pipeline.runs(limit=2)
    assert run.finished_ms is None
    assert run.report["segments"] in (1, 2)
    await lab.check(topic)
