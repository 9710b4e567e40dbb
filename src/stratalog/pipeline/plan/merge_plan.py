"""From the claimed rows of partitions to the segments that are made of them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import Claim
from stratalog.errors import DamagedError
from stratalog.ids import Offset, TopicId
from stratalog.pipeline.plan.selection import TopicFacts, least_segment_bytes, segment_target_bytes
from stratalog.pipeline.plan.tasks import MergeTask, SegmentPlan
from stratalog.settings import TieringSettings

_MOST_OFFSETS = 2**31 - 1
"""Offsets in a segment's indexes are 32-bit numbers, relative to its base."""


class HoleError(DamagedError):
    """Rows that should follow each other do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRows:
    """A claim, and the rows in its range in offset order."""

    claim: Claim
    rows: Sequence[Coordinates]
    end_offset: Offset
    """Where the rows must end: where the claim does, or earlier, if the rows are too many for one
    run, or a row has come to reach beyond the claim."""

    @property
    def is_cut(self) -> bool:
        return self.end_offset < self.claim.end_offset


def check_rows(claimed: ClaimedRows) -> None:
    """Raise unless the rows fill the claim's range without a hole."""
    expected = int(claimed.claim.first_offset)
    for row in claimed.rows:
        if row.base_offset != expected:
            raise HoleError(
                f"after offset {expected - 1} comes a row at {row.base_offset}; run"
                " `stratalog fsck`"
            )
        expected = row.last_offset + 1
    if expected != claimed.end_offset:
        raise HoleError(
            f"the rows end at offset {expected - 1}, not {claimed.end_offset - 1}; run"
            " `stratalog fsck`"
        )


def plan_segments(
    claimed: ClaimedRows, facts: TopicFacts, settings: TieringSettings, now_ms: int
) -> list[SegmentPlan]:
    """Cut the rows into segments of the topic's size, at the borders of rows.

    The last piece waits for more if it is small, its records are young, and nobody asked for them.
    """
    pieces = list(_cut(claimed.rows, segment_target_bytes(facts, settings)))
    least = least_segment_bytes(facts, settings)
    too_little = bool(pieces) and _bytes(pieces[-1]) < least
    # A run may not take more of it: if that is too little, nothing would ever be done.
    is_all = claimed.is_cut and len(pieces) == 1
    if too_little and not is_all and _may_wait(pieces[-1], facts, now_ms):
        pieces.pop()
    return [_segment(claimed.claim, facts, rows) for rows in pieces]


def _may_wait(rows: Sequence[Coordinates], facts: TopicFacts, now_ms: int) -> bool:
    oldest_ms = rows[0].oldest_commit_ms
    triggered = facts.triggered_ms is not None and oldest_ms <= facts.triggered_ms
    return not triggered and now_ms - oldest_ms < facts.segment_ms


def _cut(rows: Sequence[Coordinates], target_bytes: int) -> Iterable[Sequence[Coordinates]]:
    piece: list[Coordinates] = []
    size_bytes = 0
    for row in rows:
        full = size_bytes + row.byte_size > target_bytes
        if piece and (full or row.last_offset - piece[0].base_offset > _MOST_OFFSETS):
            yield piece
            piece, size_bytes = [], 0
        piece.append(row)
        size_bytes += row.byte_size
    if piece:
        yield piece


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
    """Tasks of about `task_bytes`, of neighbouring partitions, because those lie side by side in
    every block: one read then serves all that a task makes."""
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
    return [MergeTask(segments=task) for task in tasks]


def _bytes(rows: Sequence[Coordinates]) -> int:
    return sum(row.byte_size for row in rows)
