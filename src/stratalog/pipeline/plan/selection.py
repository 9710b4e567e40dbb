"""The choice of the partitions that a run converts. Pure: the same facts make the same selection.

Each kind of job that converts aged rows is asked whether it wants a partition, and the first one
that does gets it. A partition that no kind wants waits, for a reason that the report names.

A run reads a bounded number of bytes and rows. The oldest partitions come first. The rest is left
to the next run, or to one that works at the same time: partitions that other runs have claimed are
passed by. A partition that failed waits until all partitions that were waiting when it failed have
had their turn, and then comes before the others. So a partition that fails again and again cannot
keep the budget from the others for ever, and one that failed once gets its turn in the end,
although new work keeps coming.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from stratalog.control.pipeline.model import AgedPartition, UnitKind
from stratalog.ids import TopicId, TopicPartition
from stratalog.pipeline.topic_facts import TopicFacts
from stratalog.settings import TieringSettings


class Candidate(NamedTuple):
    """A partition that could be converted, and the facts that decide it."""

    partition: AgedPartition
    topic: TopicFacts
    settings: TieringSettings
    now_ms: int

    @property
    def has_too_many_rows(self) -> bool:
        return self.partition.rows > self.settings.max_rows


class Converter(Protocol):
    """A kind of job as the selection sees it."""

    @property
    def name(self) -> str: ...

    @property
    def unit_kind(self) -> UnitKind: ...

    def wants(self, candidate: Candidate) -> bool: ...

    def is_worth_starting(self, wanted: Sequence[Candidate]) -> bool: ...


class Reason(StrEnum):
    """The reason why a partition with aged rows is left alone."""

    PAUSED = "of paused topics"
    PARKED = "parked"
    CLAIMED = "in another run"
    MIGRATING = "not wholly uploaded yet"
    TOO_LITTLE = "with too little for a segment"
    OTHER_KIND = "for the other kind of run"
    BUDGET = "for the next run"


_POSTPONED = (Reason.BUDGET, Reason.OTHER_KIND)


@dataclass(slots=True)
class Selection:
    by_kind: dict[str, list[AgedPartition]] = field(default_factory=dict)
    """The partitions to convert, by the name of the kind, in the order of topic and partition."""
    waiting: dict[Reason, list[AgedPartition]] = field(default_factory=dict)

    @property
    def selected(self) -> list[AgedPartition]:
        return [partition for chosen in self.by_kind.values() for partition in chosen]

    @property
    def postponed(self) -> set[TopicPartition]:
        """The partitions that only wait for another run."""
        return {one.topic_partition for why in _POSTPONED for one in self.waiting.get(why, ())}

    def wait(self, partition: AgedPartition, reason: Reason) -> None:
        self.waiting.setdefault(reason, []).append(partition)


class _Wanted(NamedTuple):
    rank: int
    """The position of the kind that wants the partition: earlier kinds come first."""
    partition: AgedPartition


def select(
    aged: Sequence[AgedPartition],
    topics: Mapping[TopicId, TopicFacts],
    settings: TieringSettings,
    now_ms: int,
    kinds: Sequence[Converter],
    asked: Collection[UnitKind] = tuple(UnitKind),
) -> Selection:
    """Select for all `kinds`; the partitions of a kind that was not `asked` for wait."""
    selection = Selection(by_kind={kind.name: [] for kind in kinds})
    offered: list[list[Candidate]] = [[] for _ in kinds]
    for partition in aged:
        reason = _why_barred(partition)
        if reason is not None:
            selection.wait(partition, reason)
            continue
        candidate = Candidate(partition, topics[partition.topic_id], settings, now_ms)
        for kind, candidates in zip(kinds, offered, strict=True):
            if kind.wants(candidate):
                candidates.append(candidate)
                break
        else:
            selection.wait(partition, _why_unwanted(partition))
    wanted: list[_Wanted] = []
    for rank, (kind, candidates) in enumerate(zip(kinds, offered, strict=True)):
        partitions = [candidate.partition for candidate in candidates]
        if not kind.is_worth_starting(candidates):
            for partition in partitions:
                selection.wait(partition, _why_unwanted(partition))
        elif kind.unit_kind not in asked:
            for partition in partitions:
                selection.wait(partition, Reason.OTHER_KIND)
        else:
            wanted += [_Wanted(rank, partition) for partition in partitions]
    _spend_budget(_in_turn(wanted), kinds, settings, selection)
    return selection


def _why_barred(partition: AgedPartition) -> Reason | None:
    if partition.paused:
        return Reason.PAUSED
    if partition.parked:
        return Reason.PARKED
    return Reason.CLAIMED if partition.claimed else None


def _why_unwanted(partition: AgedPartition) -> Reason:
    uploaded = partition.remote_end == partition.first_offset
    return Reason.TOO_LITTLE if uploaded else Reason.MIGRATING


def _spend_budget(
    wanted: Sequence[_Wanted],
    kinds: Sequence[Converter],
    settings: TieringSettings,
    selection: Selection,
) -> None:
    budget = _Budget(settings.max_bytes_per_run, settings.max_batches_per_run)
    for rank, partition in wanted:
        if budget.takes(partition):
            selection.by_kind[kinds[rank].name].append(partition)
        else:
            selection.wait(partition, Reason.BUDGET)
    for chosen in selection.by_kind.values():
        chosen.sort(key=_topic_partition)


class _Budget:
    """The bytes and rows that a run may still read.

    The first partition may want more than the whole budget, or it would wait for ever. How much of
    it is then done is decided by the planner.
    """

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


def _in_turn(wanted: Sequence[_Wanted]) -> list[_Wanted]:
    """Sort by kind, the oldest of each first, with the partitions that failed in their own turn.

    A failed partition comes after all others while one of the others was already waiting when it
    failed, and before them from then on.
    """
    fresh = [one for one in wanted if not one.partition.has_failed]
    failed = sorted((one for one in wanted if one.partition.has_failed), key=_failed_first)
    since_ms = min((one.partition.waiting_since_ms for one in fresh), default=None)
    due = [one for one in failed if since_ms is None or _failed_ms(one) < since_ms]
    return [*due, *sorted(fresh, key=_oldest_first), *failed[len(due) :]]


def _oldest_first(wanted: _Wanted) -> tuple[object, ...]:
    partition = wanted.partition
    return (wanted.rank, partition.oldest_ms, partition.topic_partition)


def _failed_first(wanted: _Wanted) -> tuple[object, ...]:
    return (_failed_ms(wanted), _oldest_first(wanted))


def _failed_ms(wanted: _Wanted) -> int:
    return wanted.partition.failed_ms or 0


def _topic_partition(partition: AgedPartition) -> TopicPartition:
    return partition.topic_partition
