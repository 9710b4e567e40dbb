"""Which partitions a run works on, and how. Pure: the same facts make the same choice.

A partition with enough aged bytes for a segment is merged straight from where its rows point:
every byte is read once and written once. So is one whose oldest record is older than the topic's
`segment.ms`, however little it has, so that everything is converted in the end. Of the others,
those in many small pieces are split: their rows move together into few large objects, which costs
one more copy of bytes that are few.

What a run may read is bounded. The oldest come first, and what is left over is the next run's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from stratalog.control.commit import MAX_ROW_BYTES
from stratalog.control.pipeline_model import AgedPartition
from stratalog.ids import TopicId
from stratalog.settings import TieringSettings

_PIECES_PER_ROW = 2
"""A partition is in small pieces when its rows are more than so many times what they need be."""


class TopicFacts(NamedTuple):
    """What the pipeline must know of a topic."""

    name: str
    segment_bytes: int
    segment_ms: int
    index_interval_bytes: int
    age_ms: int
    """How long ago records must have been committed before they are converted."""


class Reason(StrEnum):
    """Why a partition with aged rows is left alone."""

    PARKED = "parked"
    MIGRATING = "its local files are not uploaded yet"
    TOO_LITTLE = "not enough for a segment yet"
    BUDGET = "left for the next run"


@dataclass(slots=True)
class Selection:
    merges: list[AgedPartition] = field(default_factory=list)
    splits: list[AgedPartition] = field(default_factory=list)
    waiting: dict[Reason, list[AgedPartition]] = field(default_factory=dict)

    def wait(self, partition: AgedPartition, reason: Reason) -> None:
        self.waiting.setdefault(reason, []).append(partition)


def segment_target_bytes(facts: TopicFacts, settings: TieringSettings) -> int:
    """How large the topic's segments are to be."""
    return min(facts.segment_bytes, settings.max_segment_bytes)


def least_segment_bytes(facts: TopicFacts, settings: TieringSettings) -> int:
    """The least that is worth a segment, as long as it is young."""
    return min(settings.min_segment_bytes, segment_target_bytes(facts, settings))


def select(
    aged: Sequence[AgedPartition],
    topics: Mapping[TopicId, TopicFacts],
    settings: TieringSettings,
    now_ms: int,
) -> Selection:
    selection = Selection()
    merges, splits = [], []
    for partition in aged:
        facts = topics[partition.topic_id]
        if partition.parked:
            selection.wait(partition, Reason.PARKED)
        elif _is_mergeable(partition, facts, settings, now_ms):
            if partition.remote_end == partition.first_offset:
                merges.append(partition)
            else:
                selection.wait(partition, Reason.MIGRATING)
        elif _is_scattered(partition, settings):
            splits.append(partition)
        else:
            selection.wait(partition, Reason.TOO_LITTLE)
    budget = _Budget(settings.max_bytes_per_run, settings.max_batches_per_run)
    selection.merges = budget.take(merges, selection)
    selection.splits = budget.take(splits, selection)
    return selection


def _is_mergeable(
    partition: AgedPartition, facts: TopicFacts, settings: TieringSettings, now_ms: int
) -> bool:
    if partition.bytes >= least_segment_bytes(facts, settings):
        return True
    return now_ms - partition.oldest_ms >= facts.segment_ms


def _is_scattered(partition: AgedPartition, settings: TieringSettings) -> bool:
    needed = -(-partition.bytes // MAX_ROW_BYTES)
    return partition.rows > max(settings.max_rows, _PIECES_PER_ROW * needed)


class _Budget:
    """What a run may still read. The first taker gets more than there is, so that it moves on."""

    def __init__(self, bytes_left: int, rows_left: int) -> None:
        self._bytes_left = bytes_left
        self._rows_left = rows_left
        self._untouched = True

    def take(self, wanted: Iterable[AgedPartition], selection: Selection) -> list[AgedPartition]:
        taken = []
        for partition in sorted(wanted, key=_oldest_first):
            if self._fits(partition):
                taken.append(partition)
            else:
                selection.wait(partition, Reason.BUDGET)
        return sorted(taken, key=lambda partition: partition.topic_partition)

    def _fits(self, partition: AgedPartition) -> bool:
        within = partition.bytes <= self._bytes_left and partition.rows <= self._rows_left
        if not (within or self._untouched):
            return False
        self._untouched = False
        self._bytes_left -= partition.bytes
        self._rows_left -= partition.rows
        return True


def _oldest_first(partition: AgedPartition) -> tuple[object, ...]:
    return (partition.oldest_ms, partition.topic_partition)
