"""The recovery of records that the store holds and the control plane does not know.

1. The store is searched, and a plan is made for each partition. Nothing is written.
2. One transaction adds all that was found. A crash before it leaves the control plane as it was; a
   crash after it leaves nothing to be found by the next recovery.
3. Offsets that are skipped are marked as lost, so that readers go on behind them. A crash leaves
   some of them for the next recovery, which finds offsets without rows.
4. The deletions of which the store has notes are repeated. A crash leaves some of them for the
   next recovery, too.

No other program works on the cluster meanwhile. A recovery that finds offsets whose records cannot
be proven changes nothing, unless they are to be skipped.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stratalog.block.footer import BlockFooter
from stratalog.checks.lost_ranges import mark_lost, plan_loss
from stratalog.checks.remote_tier import RemoteTier
from stratalog.checks.report import Progress
from stratalog.clock import SYSTEM_CLOCK
from stratalog.control.objects.model import ObjectKind, ObjectState
from stratalog.control.plane import ControlPlane
from stratalog.control.recoveries.model import (
    Changes,
    RecoveredObject,
    RecoveredPartition,
    RecoveredTopic,
)
from stratalog.control.writers.model import WriterKind
from stratalog.ids import ObjectId, Offset, TopicId, TopicPartition, WriterTag, system_entropy
from stratalog.objects.store import ObjectStore
from stratalog.opening.writers import announced_writer
from stratalog.recovery.changes import recovered_partition
from stratalog.recovery.deletion_notes import Deletions
from stratalog.recovery.errors import UnprovenOffsetsError
from stratalog.recovery.evidence import OffsetRange, Source
from stratalog.recovery.findings import Findings, with_sequences
from stratalog.recovery.ground import Ground, read_ground
from stratalog.recovery.headers import HeaderReader
from stratalog.recovery.layout import PartitionPlan, plan_partition
from stratalog.recovery.matching import matched_answers
from stratalog.recovery.report import PartitionReport, RecoveryReport
from stratalog.recovery.survey import FoundObject, Survey, survey
from stratalog.recovery.topic_names import NamedTopic, distinct_names


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPlan:
    """All that a recovery would do."""

    changes: Changes
    gaps: Sequence[tuple[TopicPartition, str, OffsetRange]]
    """Offsets without rows, with the names of their topics."""
    starts: Mapping[TopicPartition, Offset]
    """The starts of partitions whose first records were deleted after the ground."""
    deleted_topics: Sequence[TopicId]
    """Topics that were deleted after the ground."""
    report: RecoveryReport


async def plan_recovery(
    control: ControlPlane, store: ObjectStore, tier: RemoteTier, *, progress: Progress
) -> RecoveryPlan:
    """Find out how the control plane can be completed from the store. Changes nothing."""
    ground = await read_ground(control)
    found = await survey(store, tier, ground.known, progress)
    findings = Findings(ground, found)
    headers = HeaderReader(store)
    plans: list[PartitionPlan] = []
    for evidence in findings.evidence():
        read = await with_sequences(evidence, headers)
        plans.append(plan_partition(await matched_answers(read, store, tier, headers)))
    changed = [plan for plan in plans if _changes(plan, ground)]
    partitions = [await _partition(plan, ground, headers) for plan in changed]
    names = _names(found.deletions, findings, ground)
    starts = _starts(plans)
    deleted_topics = sorted(each for each in names if found.deletions.is_deleted(each))
    return RecoveryPlan(
        changes=Changes(
            topics=_topics(names, findings, ground),
            objects=_objects(found, findings, partitions, plans),
            partitions=partitions,
        ),
        gaps=[
            (plan.evidence.key, names[plan.evidence.key.topic_id], each)
            for plan in plans
            for each in plan.gaps
        ],
        starts=starts,
        deleted_topics=deleted_topics,
        report=_report(changed, partitions, found, ground, names, starts, deleted_topics),
    )


async def recover(
    control: ControlPlane,
    store: ObjectStore,
    tier: RemoteTier,
    *,
    skip_unproven: bool,
    progress: Progress,
) -> RecoveryReport:
    """Complete the control plane from the store. May be repeated: it finds nothing then."""
    plan = await plan_recovery(control, store, tier, progress=progress)
    if plan.report.unproven and not skip_unproven:
        raise UnprovenOffsetsError(plan.report)
    await control.recoveries.apply(plan.changes)
    if plan.gaps:
        async with announced_writer(control, WriterKind.REPAIR) as writer:
            for key, topic_name, gap in plan.gaps:
                await _fill(control, store, key, topic_name, gap, writer)
    if plan.starts:
        await control.log.delete_records(plan.starts)
    for topic_id in plan.deleted_topics:
        await control.topics.delete(topic_id)
    return plan.report


def _starts(plans: Iterable[PartitionPlan]) -> dict[TopicPartition, Offset]:
    return {
        plan.evidence.key: Offset(plan.evidence.deleted_before)
        for plan in plans
        if plan.evidence.deleted_before > plan.log_start
    }


async def _fill(
    control: ControlPlane,
    store: ObjectStore,
    key: TopicPartition,
    topic_name: str,
    gap: OffsetRange,
    writer: WriterTag,
) -> None:
    """Let readers go on behind offsets that cannot be proven."""
    loss = await plan_loss(control, store, key, gap.start, gap.end)
    await mark_lost(
        control,
        store,
        loss,
        topic_name=topic_name,
        reason="a recovery could not prove which records were given these offsets",
        noted_by="recovery",
        writer=writer,
        clock=SYSTEM_CLOCK,
        entropy=system_entropy,
    )


def _changes(plan: PartitionPlan, ground: Ground) -> bool:
    known = ground.rows.get(plan.evidence.key, ())
    return bool(
        plan.segments
        or len(plan.rows) != len(known)
        or any(row.source is not Source.KNOWN for row in plan.rows)
        or plan.gaps
        or plan.lost
    )


async def _partition(
    plan: PartitionPlan, ground: Ground, headers: HeaderReader
) -> RecoveredPartition:
    key = plan.evidence.key
    return await recovered_partition(
        plan, ground.states.get(key), ground.rows.get(key, ()), headers
    )


def _names(deletions: Deletions, findings: Findings, ground: Ground) -> dict[TopicId, str]:
    """Return the names of all topics that are there, or will be."""
    present = {*ground.topics, *findings.partition_counts()}
    return distinct_names(
        NamedTopic(
            topic_id,
            _own_name(topic_id, findings, ground),
            deletions.is_deleted(topic_id),
            findings.newest_ms.get(topic_id, 0),
        )
        for topic_id in present
    )


def _own_name(topic_id: TopicId, findings: Findings, ground: Ground) -> str:
    topic = ground.topics.get(topic_id)
    return findings.names[topic_id] if topic is None else topic.name


def _topics(
    names: Mapping[TopicId, str], findings: Findings, ground: Ground
) -> list[RecoveredTopic]:
    counts = findings.partition_counts()
    topics: list[RecoveredTopic] = []
    # Topics of the ground come first, as they may have to give up their names.
    for topic_id in sorted(names, key=lambda each: (each not in ground.topics, each)):
        known, count = ground.topics.get(topic_id), counts.get(topic_id, 0)
        if known is not None:
            count = max(count, known.partition_count)
            if (known.name, known.partition_count) == (names[topic_id], count):
                continue
        name = names[topic_id]
        topics.append(RecoveredTopic(topic_id=topic_id, name=name, partition_count=count))
    return topics


def _objects(
    found: Survey,
    findings: Findings,
    partitions: Iterable[RecoveredPartition],
    plans: Iterable[PartitionPlan],
) -> list[RecoveredObject]:
    used = {row.object_id for partition in partitions for row in partition.new_rows}
    unplaced = {part.object_id for plan in plans for part in plan.rest}
    given_up = {each.footer.block_id for each in findings.never_committed}
    return [
        _object(each, _state_of(each.footer.block_id, used, unplaced))
        for each in found.objects
        # Garbage stays without a row, and is swept.
        if each.footer.block_id not in given_up
    ]


def _state_of(object_id: ObjectId, used: set[ObjectId], unplaced: set[ObjectId]) -> ObjectState:
    if object_id in used:
        return ObjectState.LIVE
    # All others were replaced: their records are in the rows and segments that were chosen.
    return ObjectState.KEPT if object_id in unplaced else ObjectState.MARKED


def _object(found: FoundObject, state: ObjectState) -> RecoveredObject:
    return RecoveredObject(
        object_id=found.footer.block_id,
        key=found.info.key,
        kind=_kind(found.footer),
        state=state,
        size_bytes=found.info.size_bytes,
        created_ms=found.footer.created_ms,
    )


def _kind(footer: BlockFooter) -> ObjectKind:
    return ObjectKind.SPLIT if footer.stamped else ObjectKind.BLOCK


def _report(
    changed: Sequence[PartitionPlan],
    partitions: Sequence[RecoveredPartition],
    found: Survey,
    ground: Ground,
    names: Mapping[TopicId, str],
    starts: Mapping[TopicPartition, Offset],
    deleted_topics: Sequence[TopicId],
) -> RecoveryReport:
    def name_of(key: TopicPartition) -> str:
        return f"{names[key.topic_id]}-{key.partition}"

    return RecoveryReport(
        partitions=[
            PartitionReport(
                name=name_of(plan.evidence.key),
                known_end=plan.evidence.high_watermark,
                end=plan.taken_end,
                segments=len(plan.segments),
                rows=len(change.new_rows),
                inferred=plan.inferred,
                unproven=plan.unproven,
                lost=plan.lost,
            )
            for plan, change in zip(changed, partitions, strict=True)
        ],
        new_topics=sorted(
            name for topic_id, name in names.items() if topic_id not in ground.topics
        ),
        deleted_records=[(name_of(key), start) for key, start in sorted(starts.items())],
        deleted_topics=[names[each] for each in deleted_topics],
        unreadable=found.unreadable,
        kept=sorted({part.object_key for plan in changed for part in plan.rest}),
        remarks=_remarks(changed),
    )


def _remarks(changed: Sequence[PartitionPlan]) -> list[str]:
    remarks = [
        "Configs and groups are as they were in the ground of this recovery. Deletions after it are"
        " repeated as far as the store has notes of them, which are kept for 30 days."
    ]
    if any(plan.inferred for plan in changed):
        remarks.append(
            "Inferred offsets may hold records whose producer got an error: their block was"
            " uploaded, and the store does not tell that its commit was refused."
        )
    if any(plan.evidence.is_new for plan in changed):
        remarks.append(
            "Partitions that were made from the store begin at the first offset that it holds, and"
            " configs and committed offsets of their topics are lost."
        )
    return remarks
