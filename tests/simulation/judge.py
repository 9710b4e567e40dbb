"""The judgement of a simulated run: the history checker, the promises, the limits of deletion."""

from typing import TYPE_CHECKING

from tests.simulation.disasters import CONTROL_BACK

from stratalog.checks.fsck import run_fsck
from stratalog.checks.report import Finding, Severity
from stratalog.control.plane import ControlPlane
from stratalog.ids import writer_tag_of
from stratalog.opening.vacancy import id_in
from stratalog.testing.checker.check import CHECKS, check
from stratalog.testing.checker.history import (
    Assign,
    Drained,
    Event,
    OutOfRange,
    Poll,
    Restored,
    Seek,
    Send,
    WentBack,
)

if TYPE_CHECKING:
    from tests.simulation.world import World

_NOT_WITH_DELETIONS = ("lost-write", "unseen", "out-of-range", "gap")
_DELETING = {name: one for name, one in CHECKS.items() if name not in _NOT_WITH_DELETIONS}


async def judge(world: "World") -> list[str]:
    history = world.clients.history
    violations: list[str] = []
    for topic in world.topics:
        checks = CHECKS if topic.name == "kept" else _DELETING
        report = check([*_of_topic(history, topic.name)], checks)
        violations += [f"{finding}" for finding in report.findings]
        for name, count in report.counts.items():
            world.counts[name] = world.counts.get(name, 0) + count
    violations += await _deletions(world)
    if not world.around.holds(world.stranger.key):
        violations.append(f"foreign: {world.stranger.key} was deleted")
    control = ControlPlane(world.database, bytes)
    fsck = await run_fsck(
        control, world.around.store, deep=True, clock=world.clock, orphan_age_ms=0
    )
    world.counts.update({f"fsck {name}": count for name, count in fsck.counts.items()})
    violations += [
        f"promise {int(finding.problem.promise)} ({finding.problem.severity}): {finding}"
        for finding in fsck.findings
        if not await _is_foreign(world, control, finding)
    ]
    return violations


async def _is_foreign(world: "World", control: ControlPlane, finding: Finding) -> bool:
    """fsck counts an object without a row as waste, also if another cluster made it, or a run that
    was announced to a control plane which went back. No sweeper takes such an object."""
    if finding.where == world.stranger.key:
        return True
    if finding.problem.severity is not Severity.WASTE or CONTROL_BACK not in world.counts:
        return False
    object_id = id_in(finding.where)
    if object_id is None:
        return False
    tag = writer_tag_of(object_id)
    return tag not in await control.writers.known([tag])


async def _deletions(world: "World") -> list[str]:
    """Records went only if a client asked for it, or retention has enough without them."""
    control = ControlPlane(world.database, bytes)
    violations = []
    for topic in world.topics:
        for state in await control.log.topic_partitions(topic.id):
            asked = world.clients.deleted[topic.name, state.partition]
            if state.log_start > asked and topic.name == "kept":
                violations.append(
                    f"deleted: {topic.name}-{state.partition} begins at {state.log_start}"
                )
    return violations


def _of_topic(history: list[Event], name: str) -> "list[Event]":
    return [mine for event in history if (mine := _mine(event, name)) is not None]


def _mine(event: Event, name: str) -> Event | None:
    match event:
        case Send():
            return event if event.topic == name else None
        case Poll():
            records = tuple(record for record in event.records if record.topic == name)
            return Poll(client=event.client, records=records) if records else None
        case Assign():
            positions = tuple(one for one in event.positions if one.topic == name)
            return Assign(client=event.client, positions=positions)
        case Seek() | OutOfRange():
            return event if event.position.topic == name else None
        case Drained():
            ends = tuple(one for one in event.ends if one.topic == name)
            return Drained(client=event.client, ends=ends)
        case WentBack() | Restored():
            return event
        case _:
            return None
