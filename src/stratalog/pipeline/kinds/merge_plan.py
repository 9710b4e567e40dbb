"""The plan of a merge: claimed rows of partitions, cut into segments and tasks. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import Claim
from stratalog.ids import TopicId
from stratalog.pipeline.kinds.merge_model import MergeTask, SegmentPlan
from stratalog.pipeline.plan.claimed_rows import ClaimedRows
from stratalog.pipeline.topic_facts import TopicFacts
from stratalog.settings import TieringSettings

_MOST_OFFSETS = 2**31 - 1
"""Offsets in a segment's indexes are 32-bit numbers, relative to its base."""


def segment_target_bytes(facts: TopicFacts, settings: TieringSettings) -> int:
    """Return the size at which the topic's segments are full."""
    return min(facts.segment_bytes, settings.max_segment_bytes)


def least_segment_bytes(facts: TopicFacts, settings: TieringSettings) -> int:
    """Return the smallest size that is worth a segment while its records are young."""
    return min(settings.min_segment_bytes, segment_target_bytes(facts, settings))


def plan_segments(
    claimed: ClaimedRows, facts: TopicFacts, settings: TieringSettings, now_ms: int
) -> list[SegmentPlan]:
    """Cut the rows into segments of the topic's size, at the borders of rows.

    The last segment is left for a later run if it is small, its records are young, and the topic
    was not triggered since they were committed.
    """
    segments = list(_cut(claimed.rows, segment_target_bytes(facts, settings)))
    least = least_segment_bytes(facts, settings)
    too_little = bool(segments) and _bytes(segments[-1]) < least
    # A run may not load more rows of this partition. If the rows that it loads are too few for a
    # segment, waiting would not change that, and the partition would never be converted.
    is_all = claimed.is_cut and len(segments) == 1
    if too_little and not is_all and _may_wait(segments[-1], facts, now_ms):
        segments.pop()
    return [_segment(claimed.claim, facts, rows) for rows in segments]


def _may_wait(rows: Sequence[Coordinates], facts: TopicFacts, now_ms: int) -> bool:
    oldest_ms = rows[0].oldest_commit_ms
    triggered = facts.triggered_ms is not None and oldest_ms <= facts.triggered_ms
    return not triggered and now_ms - oldest_ms < facts.segment_ms


def _cut(rows: Sequence[Coordinates], target_bytes: int) -> Iterable[Sequence[Coordinates]]:
    segment: list[Coordinates] = []
    size_bytes = 0
    for row in rows:
        full = size_bytes + row.byte_size > target_bytes
        if segment and (full or row.last_offset - segment[0].base_offset > _MOST_OFFSETS):
            yield segment
            segment, size_bytes = [], 0
        segment.append(row)
        size_bytes += row.byte_size
    if segment:
        yield segment


def _segment(claim: Claim, facts: TopicFacts, rows: Sequence[Coordinates]) -> SegmentPlan:
    return SegmentPlan(
        token=claim.token,
        topic_id=claim.partition.topic_id,
        topic_name=facts.name,
        partition=claim.partition.partition,
        base_offset=rows[0].base_offset,
        last_offset=rows[-1].last_offset,
        size_bytes=_bytes(rows),
        index_interval_bytes=facts.index_interval_bytes,
        rows=rows,
    )


def plan_merges(
    claimed: Iterable[ClaimedRows],
    topics: Mapping[TopicId, TopicFacts],
    settings: TieringSettings,
    now_ms: int,
) -> list[MergeTask]:
    """Fill tasks of about `task_bytes` with the segments of neighbouring partitions.

    Neighbouring partitions lie side by side in every block, so that one read serves all segments of
    a task.
    """
    segments = [
        segment
        for one in sorted(claimed, key=lambda one: one.claim.partition)
        for segment in plan_segments(one, topics[one.claim.partition.topic_id], settings, now_ms)
    ]
    tasks: list[list[SegmentPlan]] = []
    room_bytes = 0
    for segment in segments:
        if not tasks or segment.size_bytes > room_bytes:
            tasks.append([])
            room_bytes = settings.task_bytes
        tasks[-1].append(segment)
        room_bytes -= segment.size_bytes
    return [MergeTask(parts=segments) for segments in tasks]


def _bytes(rows: Sequence[Coordinates]) -> int:
    return sum(row.byte_size for row in rows)
