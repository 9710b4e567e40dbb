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
from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import (
    ClaimWish,
    DeadObject,
    DeadObjects,
    ObjectCursor,
    UnitKind,
)
from stratalog.control.plane import ControlPlane
from stratalog.ids import ObjectId, Offset, TopicId, TopicPartition
from stratalog.pipeline.plan.selection import Reason, Selection, TopicFacts
from stratalog.pipeline.plan.split_plan import is_worth_joining, outgrown_files, small_file_bytes
from stratalog.settings import DAY_MS, TieringSettings

_LIVE_PART = 0.25
"""Objects of which no more than this part is alive are rewritten."""
_STUCK_MS = DAY_MS
"""How long an object is left alone whose rows could not be moved. Somebody may repair it."""
_PAGE = 200
"""Objects that one statement looks at. With ten thousand rows in each that takes PostgreSQL half
a second, with a hundred a hundredth of one."""
_LOOK_PAGES = 10
"""Of a look beside a broker, every minute or so. A run goes through all live objects."""

LOOK_FAILED = "Objects that are mostly dead were not looked for, and stay until it works: %s"
"""What is logged, and all that is done: whatever else the pipeline has to do does not wait."""

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
    chosen.add_all(_worth_moving(await _left_behind(control, converted), facts, spared))
    after: ObjectCursor | None = None
    while not chosen.is_full:
        page = await _next_page(control, settings, after)
        chosen.add_all(_worth_moving(await _with_rows(control, page.found), facts, spared))
        after = page.after
        if after is None:
            break
    if not chosen.is_full:
        resting = _movable(await _resting_rows(control, settings), facts, spared)
        chosen.add_all(_worth_joining(resting, chosen, settings))
    return chosen.by_partition()


class RewriteLook:
    """Whether there is anything to rewrite, asked again and again.

    A look goes through a part of the live objects, so that it costs as little with millions of
    them, and the next one goes on from there. Where something was found it begins again: a run
    takes the oldest objects first, and may have left that.
    """

    def __init__(self) -> None:
        self._after: ObjectCursor | None = None

    async def finds_any(
        self,
        control: ControlPlane,
        facts: Mapping[TopicId, TopicFacts],
        settings: TieringSettings,
        spared: Collection[TopicPartition],
    ) -> bool:
        for _ in range(_LOOK_PAGES):
            page = await _next_page(control, settings, self._after)
            found = _worth_moving(await _with_rows(control, page.found), facts, spared)
            if any(found):
                return True
            self._after = page.after
            if self._after is None:
                break
        nothing_else = _Chosen(settings, settings.max_bytes_per_run)
        resting = _movable(await _resting_rows(control, settings), facts, spared)
        return any(_worth_joining(resting, nothing_else, settings))


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

    def add_all(self, objects: Iterable[Sequence[Coordinates]]) -> None:
        for rows in objects:
            self.add(rows)

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
            DeadObject(object_id, _bytes(alive)),
            [row for row in alive if (*_partition(row), row.base_offset) not in gone],
        )
        for object_id, alive in rows.items()
    ]


async def _next_page(
    control: ControlPlane, settings: TieringSettings, after: ObjectCursor | None
) -> DeadObjects:
    return await control.pipeline.mostly_dead_objects(
        older_than_ms=settings.age_ms,
        max_live_part=_LIVE_PART,
        stuck_for_ms=_STUCK_MS,
        limit=_PAGE,
        after=after,
    )


async def _with_rows(
    control: ControlPlane, objects: Sequence[DeadObject]
) -> list[tuple[DeadObject, Sequence[Coordinates]]]:
    rows = await _rows_by_object(control, [one.object_id for one in objects])
    return [(one, rows[one.object_id]) for one in objects]


def _worth_moving(
    objects: Iterable[tuple[DeadObject, Sequence[Coordinates]]],
    facts: Mapping[TopicId, TopicFacts],
    spared: Collection[TopicPartition],
) -> list[Sequence[Coordinates]]:
    """What may be moved out of each of the objects that this would free much of."""
    return [
        _movable(alive, facts, spared) for one, alive in objects if frees_enough(one, alive, facts)
    ]


def _worth_joining(
    resting: Sequence[Coordinates], chosen: _Chosen, settings: TieringSettings
) -> list[Sequence[Coordinates]]:
    files = chosen.fitting(outgrown_files(resting))
    return files if is_worth_joining(files, settings.max_rows) else []


async def _resting_rows(control: ControlPlane, settings: TieringSettings) -> list[Coordinates]:
    return await control.pipeline.held_back_rows(
        max_file_bytes=small_file_bytes(settings),
        more_than=settings.max_rows,
        stuck_for_ms=_STUCK_MS,
        limit=settings.max_batches_per_run,
    )


async def _rows_by_object(
    control: ControlPlane, ids: Collection[ObjectId]
) -> Mapping[ObjectId, Sequence[Coordinates]]:
    found: dict[ObjectId, list[Coordinates]] = defaultdict(list)
    for row in await control.pipeline.coordinates_in([*ids]) if ids else []:
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
