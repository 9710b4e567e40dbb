"""Which rows are moved out of objects that are mostly dead, so that those can go.

Whoever keeps the last rows of an object: a paused topic, a parked partition, a long retention. A
rewrite frees at least three quarters of the object, counted with the footer that the rows need in
their new one. So what was just rewritten is never rewritten again, however small it is.

Paused topics and parked partitions get another small file with every run that way, and nobody
converts them. Once they have many, those are joined as those of thin partitions are: an old file
stays until several times its size has come after it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from stratalog.block.footer import stamped_footer_bytes
from stratalog.control.model import Coordinates
from stratalog.control.pipeline_model import ClaimWish, DeadObject, UnitKind
from stratalog.control.plane import ControlPlane
from stratalog.ids import ObjectId, Offset, TopicId, TopicPartition
from stratalog.pipeline.selection import Reason, Selection, TopicFacts
from stratalog.pipeline.split_plan import is_worth_joining, outgrown_files, small_file_bytes
from stratalog.settings import DAY_MS, TieringSettings

_LIVE_PART = 0.25
"""Objects of which no more than this part is alive are rewritten."""
_STUCK_MS = DAY_MS
"""How long an object is left alone whose rows could not be moved. Somebody may repair it."""
_PAGE = 200

Rewrites: TypeAlias = Mapping[TopicPartition, Sequence[Coordinates]]
"""The rows to be moved of each partition, in offset order."""


async def find_rewrites(
    control: ControlPlane,
    facts: Mapping[TopicId, TopicFacts],
    settings: TieringSettings,
    *,
    left_bytes: int,
    spared: Collection[TopicPartition],
    converted: Sequence[Coordinates] = (),
) -> Rewrites:
    """What may be rewritten with what is left of a run's bytes, the oldest objects first, and
    after those that are mostly dead the small files of partitions that nobody converts.

    `converted` are rows that are there still, and will not be.
    """
    chosen = _Chosen(settings, left_bytes)

    def offer(one: DeadObject, alive: Sequence[Coordinates]) -> None:
        if frees_enough(one, alive, facts):
            chosen.add(_movable(alive, facts, spared))

    for one, alive in await _left_behind(control, converted):
        offer(one, alive)
    after: DeadObject | None = None
    while not chosen.is_full:
        page = await control.mostly_dead_objects(
            older_than_ms=settings.age_ms,
            max_live_part=_LIVE_PART,
            stuck_for_ms=_STUCK_MS,
            limit=_PAGE,
            after=after,
        )
        rows = await _rows_by_object(control, [one.object_id for one in page])
        for one in page:
            offer(one, rows[one.object_id])
        if len(page) < _PAGE:
            break
        after = page[-1]
    if not chosen.is_full:
        resting = await _resting_rows(control, settings)
        files = chosen.fitting(outgrown_files(_movable(resting, facts, spared)))
        if is_worth_joining(files, settings.max_rows):
            for rows_of_file in files:
                chosen.add(rows_of_file)
    return chosen.by_partition()


def frees_enough(
    one: DeadObject, alive: Sequence[Coordinates], facts: Mapping[TopicId, TopicFacts]
) -> bool:
    """Whether the rows would take much less in an object of their own."""
    by_partition: dict[TopicPartition, int] = defaultdict(int)
    for row in alive:
        by_partition[_partition(row)] += 1
    footer_bytes = stamped_footer_bytes(
        (facts[key.topic_id].name if key.topic_id in facts else "", count)
        for key, count in by_partition.items()
    )
    return _bytes(alive) + footer_bytes <= one.size_bytes * _LIVE_PART


def left_bytes(selection: Selection, settings: TieringSettings) -> int:
    """What a run may read beside what was selected for it."""
    chosen = (*selection.merges, *selection.splits)
    return settings.max_bytes_per_run - sum(partition.bytes for partition in chosen)


def converted_soon(selection: Selection) -> set[TopicPartition]:
    """Those that wait for another run only: to move their rows twice would be a waste."""
    reasons = (Reason.BUDGET, Reason.OTHER_KIND)
    return {one.topic_partition for why in reasons for one in selection.waiting.get(why, ())}


def converted_now(selection: Selection) -> set[TopicPartition]:
    return {one.topic_partition for one in (*selection.merges, *selection.splits)}


def rewrite_wishes(rewrites: Rewrites) -> list[ClaimWish]:
    return [
        ClaimWish(
            partition=partition,
            kind=UnitKind.SPLIT,
            first_offset=rows[0].base_offset,
            end_offset=Offset(rows[-1].last_offset + 1),
        )
        for partition, rows in rewrites.items()
    ]


def objects_given_up(
    rewrites: Rewrites, granted: AbstractSet[TopicPartition], selection: Selection
) -> set[ObjectId]:
    """Those kept by parked partitions that not even a rewrite may claim any more."""
    parked = {one.topic_partition for one in selection.waiting.get(Reason.PARKED, ())}
    refused = (rewrites.keys() & parked) - granted
    return {row.object_id for partition in refused for row in rewrites[partition]}


class _Chosen:
    """The rows that were chosen, within what a run may read."""

    def __init__(self, settings: TieringSettings, left_bytes: int) -> None:
        self._left_bytes = left_bytes
        self._left_objects = settings.splitter_max_files_per_run
        # What is larger than a whole run may read is read alone, or it would wait for ever.
        self._untouched = left_bytes == settings.max_bytes_per_run
        self._rows: list[Coordinates] = []
        self._objects: set[ObjectId] = set()

    @property
    def is_full(self) -> bool:
        return self._left_bytes <= 0 or self._left_objects <= 0

    def add(self, rows: Sequence[Coordinates]) -> None:
        """All rows of one object that are to be moved, if it is not here yet."""
        fits = _bytes(rows) <= self._left_bytes and self._left_objects > 0
        is_new = bool(rows) and rows[0].object_id not in self._objects
        if is_new and (fits or self._untouched):
            self._objects.add(rows[0].object_id)
            self._untouched = False
            self._left_bytes -= _bytes(rows)
            self._left_objects -= 1
            self._rows += rows

    def fitting(self, objects: Iterable[Sequence[Coordinates]]) -> list[Sequence[Coordinates]]:
        """Those objects, the first ones, that could be added beside what was chosen."""
        found: list[Sequence[Coordinates]] = []
        left_bytes = self._left_bytes
        for rows in objects:
            if rows[0].object_id in self._objects:
                continue
            left_bytes -= _bytes(rows)
            if left_bytes < 0 or len(found) == self._left_objects:
                break
            found.append(rows)
        return found

    def by_partition(self) -> Rewrites:
        found: dict[TopicPartition, list[Coordinates]] = defaultdict(list)
        for row in sorted(self._rows, key=lambda row: (*_partition(row), row.base_offset)):
            found[_partition(row)].append(row)
        return found


async def _left_behind(
    control: ControlPlane, converted: Sequence[Coordinates]
) -> list[tuple[DeadObject, Sequence[Coordinates]]]:
    """What will be left in the objects of these rows. They are at least as large as what is alive
    in them now."""
    gone = {(*_partition(row), row.base_offset) for row in converted}
    # A split file may be younger than its rows, and so not be rewritten yet.
    ids = {row.object_id for row in converted if not row.stamped}
    rows = await _rows_by_object(control, ids)
    return [
        (
            DeadObject(object_id, _bytes(alive), alive[0].committed_ms),
            [row for row in alive if (*_partition(row), row.base_offset) not in gone],
        )
        for object_id, alive in rows.items()
    ]


async def _resting_rows(control: ControlPlane, settings: TieringSettings) -> list[Coordinates]:
    return await control.resting_rows(
        max_file_bytes=small_file_bytes(settings),
        more_than=settings.max_rows,
        stuck_for_ms=_STUCK_MS,
        limit=settings.max_batches_per_run,
    )


async def _rows_by_object(
    control: ControlPlane, ids: Collection[ObjectId]
) -> Mapping[ObjectId, Sequence[Coordinates]]:
    found: dict[ObjectId, list[Coordinates]] = defaultdict(list)
    for row in await control.coordinates_in([*ids]) if ids else []:
        found[row.object_id].append(row)
    return found


def _movable(
    rows: Iterable[Coordinates],
    facts: Mapping[TopicId, TopicFacts],
    spared: Collection[TopicPartition],
) -> list[Coordinates]:
    return [row for row in rows if row.topic_id in facts and _partition(row) not in spared]


def _partition(row: Coordinates) -> TopicPartition:
    return TopicPartition(row.topic_id, row.partition)


def _bytes(rows: Iterable[Coordinates]) -> int:
    return sum(row.byte_size for row in rows)
