"""Which partitions a run works on, and how. Pure: the same facts make the same choice.

A partition with enough aged bytes for a segment is merged straight from where its rows point:
every byte is read once and written once. So is one whose oldest record is older than the topic's
`segment.ms`, however little it has, so that everything is converted in the end; and one whose
oldest record was there when somebody triggered the topic.

Not yet merged is one with enough bytes, all of them in crumbs that are scattered over very many
objects, as after a time without a pipeline. It would be read by a request per crumb. Split first,
together with the others whose crumbs lie beside its own, it takes a request per object.

The others wait for more, and meanwhile must not have too many rows. As soon as one has, all that
are in small pieces are split together: their rows lie in the same blocks, which are then read
once, for all of them, and need not be kept for any of them. That is one more copy of bytes that
are few.

What a run may read is bounded. The oldest come first, and what is left over is the next run's, or
that of one that works at the same time: what others have claimed is passed by. What has failed
waits until all have had their turn who waited when it failed, and then has its own. So whatever
fails again and again takes the budget from nobody for ever, and what failed once gets it in the
end, although others go on to want it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from stratalog.control.log.commit_plan import MAX_ROW_BYTES
from stratalog.control.pipeline.model import AgedPartition, UnitKind
from stratalog.ids import TopicId, TopicPartition
from stratalog.settings import TieringSettings

SMALL_PART = 2
"""Pieces are small if they could be so many times larger."""
CRUMB_BYTES = 32 * 1024
"""Below that, what a partition has in an object is a crumb. A request takes as long as a megabyte
does (see `objects/ranges.py`), so that reading crumbs one by one is thirty times as slow as reading
them along with their neighbours, and a second copy costs little beside it. Pieces of 100 KiB and
more are merged from where they are."""
MANY_OBJECTS = 1024
"""Crumbs out of fewer objects are read in seconds, whatever they cost."""


_Wanted: TypeAlias = tuple[UnitKind, AgedPartition]


class TopicFacts(NamedTuple):
    """What the pipeline must know of a topic."""

    name: str
    segment_bytes: int
    segment_ms: int
    index_interval_bytes: int
    age_ms: int
    """How long ago records must have been committed before they are converted."""
    triggered_ms: int | None = None
    """What was committed up to then does not wait for more."""


class Reason(StrEnum):
    """Why a partition with aged rows is left alone."""

    PAUSED = "of paused topics"
    PARKED = "parked"
    CLAIMED = "in another run"
    MIGRATING = "not wholly uploaded yet"
    TOO_LITTLE = "with too little for a segment"
    OTHER_KIND = "for the other kind of run"
    BUDGET = "for the next run"


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


def with_triggers(
    topics: Mapping[TopicId, TopicFacts], aged: Iterable[AgedPartition]
) -> Mapping[TopicId, TopicFacts]:
    """The facts, with what the look at the partitions has told of triggers."""
    triggers = {each.topic_id: each.triggered_ms for each in aged}
    return {
        topic_id: facts._replace(triggered_ms=triggers.get(topic_id))
        for topic_id, facts in topics.items()
    }


def select(
    aged: Sequence[AgedPartition],
    topics: Mapping[TopicId, TopicFacts],
    settings: TieringSettings,
    now_ms: int,
    kinds: Sequence[UnitKind] = tuple(UnitKind),
) -> Selection:
    selection = Selection()
    wanted: dict[UnitKind, list[AgedPartition]] = {kind: [] for kind in UnitKind}
    for partition in aged:
        if partition.paused:
            selection.wait(partition, Reason.PAUSED)
        elif partition.parked:
            selection.wait(partition, Reason.PARKED)
        elif partition.claimed:
            selection.wait(partition, Reason.CLAIMED)
        elif _is_mergeable(partition, topics[partition.topic_id], settings, now_ms):
            wanted[UnitKind.MERGE].append(partition)
        elif is_in_pieces(partition.rows, partition.bytes):
            wanted[UnitKind.SPLIT].append(partition)
        else:
            selection.wait(partition, _why_not(partition))
    if not any(_has_too_many(partition, settings) for partition in wanted[UnitKind.SPLIT]):
        for partition in wanted[UnitKind.SPLIT]:
            selection.wait(partition, _why_not(partition))
        wanted[UnitKind.SPLIT] = []
    for kind in set(UnitKind) - set(kinds):
        for partition in wanted[kind]:
            selection.wait(partition, Reason.OTHER_KIND)
        wanted[kind] = []
    budget = _Budget(settings.max_bytes_per_run, settings.max_batches_per_run)
    taken: dict[UnitKind, list[AgedPartition]] = {kind: [] for kind in UnitKind}
    for kind, partition in _in_turn(wanted):
        if budget.takes(partition):
            taken[kind].append(partition)
        else:
            selection.wait(partition, Reason.BUDGET)
    selection.merges = sorted(taken[UnitKind.MERGE], key=_topic_partition)
    selection.splits = sorted(taken[UnitKind.SPLIT], key=_topic_partition)
    return selection


def is_in_pieces(rows: int, size_bytes: int) -> bool:
    """Whether the rows are, on average, much smaller than they could be."""
    return rows * MAX_ROW_BYTES >= SMALL_PART * size_bytes


def is_scattered(partition: AgedPartition, settings: TieringSettings) -> bool:
    """Whether the rows are crumbs in so many objects that they are better brought together first.

    They have too many rows then, so that they are split, again and again until they do not.
    """
    objects = partition.objects
    return (
        objects > MANY_OBJECTS
        and _has_too_many(partition, settings)
        and partition.bytes < objects * CRUMB_BYTES
    )


def _is_mergeable(
    partition: AgedPartition, facts: TopicFacts, settings: TieringSettings, now_ms: int
) -> bool:
    if partition.remote_end != partition.first_offset:
        return False
    if partition.triggered or now_ms - partition.oldest_ms >= facts.segment_ms:
        return True
    enough = partition.bytes >= least_segment_bytes(facts, settings)
    return enough and not is_scattered(partition, settings)


def _has_too_many(partition: AgedPartition, settings: TieringSettings) -> bool:
    return partition.rows > settings.max_rows


def _why_not(partition: AgedPartition) -> Reason:
    uploaded = partition.remote_end == partition.first_offset
    return Reason.TOO_LITTLE if uploaded else Reason.MIGRATING


class _Budget:
    """What a run may still read. The first one that comes may want more than there is, or it
    would wait for ever; how much of it is done then is the planner's business."""

    def __init__(self, bytes_left: int, rows_left: int) -> None:
        self._bytes_left = bytes_left
        self._rows_left = rows_left
        self._untouched = True

    def takes(self, partition: AgedPartition) -> bool:
        within = partition.bytes <= self._bytes_left and partition.rows <= self._rows_left
        if not (within or self._untouched):
            return False
        self._untouched = False
        self._bytes_left -= partition.bytes
        self._rows_left -= partition.rows
        return True


def _in_turn(wanted: Mapping[UnitKind, Sequence[AgedPartition]]) -> list[_Wanted]:
    """Merges before splits, the oldest of each first. Those that have failed come behind all
    others as long as one of these was there when they failed, and before them from then on."""
    all_wanted = [(kind, each) for kind in UnitKind for each in wanted[kind]]
    fresh = [one for one in all_wanted if not one[1].has_failed]
    failed = sorted((one for one in all_wanted if one[1].has_failed), key=_failed_first)
    since_ms = min((each.waiting_since_ms for _, each in fresh), default=None)
    due = [one for one in failed if since_ms is None or _failed_ms(one) < since_ms]
    return [*due, *sorted(fresh, key=_oldest_first), *failed[len(due) :]]


def _oldest_first(wanted: _Wanted) -> tuple[object, ...]:
    kind, partition = wanted
    return (kind is UnitKind.SPLIT, partition.oldest_ms, partition.topic_partition)


def _failed_first(wanted: _Wanted) -> tuple[object, ...]:
    return (_failed_ms(wanted), _oldest_first(wanted))


def _failed_ms(wanted: _Wanted) -> int:
    return wanted[1].failed_ms or 0


def _topic_partition(partition: AgedPartition) -> TopicPartition:
    return partition.topic_partition
