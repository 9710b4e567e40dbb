"""Short ways to mark ranges as lost in a lab."""

from tests.unit.pipeline.lab import Lab

from stratalog.admin.entries import PartitionName
from stratalog.admin.principal import ANONYMOUS
from stratalog.checks.fsck import run_fsck
from stratalog.checks.lost_ranges import LossPlan
from stratalog.checks.report import Promise, Severity
from stratalog.cli.admin import admin_of
from stratalog.clock import SystemClock
from stratalog.control.topics.model import Topic
from stratalog.ids import Offset


async def plan(lab: Lab, topic: Topic, first: int, end: int, partition: int = 0) -> LossPlan:
    name = PartitionName(topic.name, partition)
    lost = admin_of(lab.control, lab.settings).lost_ranges
    return await lost.plan(ANONYMOUS, lab.store, name, Offset(first), Offset(end))


async def mark(lab: Lab, topic: Topic, found: LossPlan, *, force: bool = False) -> None:
    lost = admin_of(lab.control, lab.settings).lost_ranges
    await lost.mark(ANONYMOUS, lab.store, topic.name, found, reason="gone", force=force)
    key = found.partition
    lab.lost[key] |= set(range(found.first_offset, found.end_offset))


async def problems(lab: Lab) -> list[Promise]:
    report = await run_fsck(lab.control, lab.store, deep=True, clock=SystemClock())
    return [
        each.problem.promise for each in report.findings if each.problem.severity is Severity.DAMAGE
    ]
