"""The search for rows that should move out of mostly dead objects, so that the objects can go.

A paused topic, a parked partition or a long retention may keep the last rows of an object. A
rewrite frees at least three quarters of the object, counted with the footer that the rows need in
their new object. So rows that were just rewritten are never rewritten again, however small their
object is.

That way paused topics and parked partitions get another small file with every run, and no other
kind of job converts them. Once they have many, the files are joined as the files of thin partitions
are: an old file stays until several times its size has come after it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from stratalog.block.footer import stamped_footer_bytes
from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import DeadObject, DeadObjects, ObjectCursor
from stratalog.control.plane import ControlPlane
from stratalog.ids import ObjectId, TopicId, TopicPartition
from stratalog.pipeline.kinds.kind import SearchScope
from stratalog.pipeline.kinds.split_plan import is_worth_joining, outgrown_files, small_file_bytes
from stratalog.pipeline.topic_facts import TopicFacts
from stratalog.settings import DAY_MS, TieringSettings

_LIVE_PART = 0.25
"""Objects of which no more than this part is alive are rewritten."""
_STUCK_MS = DAY_MS
"""How long an object with immovable rows is left alone. It may be repaired meanwhile."""
_PAGE = 200
"""Objects that one statement looks at. With ten thousand rows in each that takes PostgreSQL half
a second, with a hundred a hundredth of one."""
_WATCH_PAGES = 10
"""Pages of one look beside a broker, every minute or so. A run goes through all live objects."""

Rewrites: TypeAlias = Mapping[TopicPartition, Sequence[Coordinates]]
"""The rows to be moved of each partition, in offset order."""


async def find_rewrites(scope: SearchScope) -> Rewrites:
    """Find rows to move within the bytes that the run has left, the oldest objects first.

    The mostly dead objects come first, and then the small files of partitions that are not
    converted otherwise.
    """
    chosen = _Chosen(scope.settings, scope.left_bytes)
    chosen.add_all(_worth_moving(await _left_behind(scope.control, scope.converted), scope))
    after: ObjectCursor | None = None
    while not chosen.is_full:
        page = await _next_page(scope, after)
        chosen.add_all(_worth_moving(await _with_rows(scope.control, page.found), scope))
        after = page.after
        if after is None:
            break
    if not chosen.is_full:
        chosen.add_all(await _small_files(scope, chosen))
    return chosen.by_partition()


class RewriteWatch:
    """Asks again and again whether there is anything to rewrite.

    A look goes through a part of the live objects, so that it costs no more with millions of them,
    and the next look goes on from there. After a find the next look begins at the same page: a run
    takes the oldest objects first, and may have left this one.
    """

    def __init__(self) -> None:
        self._after: ObjectCursor | None = None

    async def finds_any(self, scope: SearchScope) -> bool:
        for _ in range(_WATCH_PAGES):
            page = await _next_page(scope, self._after)
            found = _worth_moving(await _with_rows(scope.control, page.found), scope)
            if any(found):
                return True
            self._after = page.after
            if self._after is None:
                break
        nothing_else = _Chosen(scope.settings, scope.settings.max_bytes_per_run)
        return any(await _small_files(scope, nothing_else))


def frees_enough(
    one: DeadObject, alive: Sequence[Coordinates], facts: Mapping[TopicId, TopicFacts]
) -> bool:
    """Tell whether the rows would take much less in an object of their own."""
    by_partition: dict[TopicPartition, int] = defaultdict(int)
    for row in alive:
        by_partition[_partition(row)] += 1
    footer_bytes = stamped_footer_bytes(
        (facts[key.topic_id].name if key.topic_id in facts else "", count)
        for key, count in by_partition.items()
    )
    return _bytes(alive) + footer_bytes <= one.size_bytes * _LIVE_PART


class _Chosen:
    """The rows that were chosen, within the bytes and objects that a run may read."""

    def __init__(self, settings: TieringSettings, left_bytes: int) -> None:
        self._left_bytes = left_bytes
        self._left_objects = settings.splitter_max_files_per_run
        # An object that is larger than a run's budget is read alone, or it would wait for ever.
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
        """Add all movable rows of one object, unless the object was added before."""
        fits = _bytes(rows) <= self._left_bytes and self._left_objects > 0
        is_new = bool(rows) and rows[0].object_id not in self._objects
        if is_new and (fits or self._untouched):
            self._objects.add(rows[0].object_id)
            self._untouched = False
            self._left_bytes -= _bytes(rows)
            self._left_objects -= 1
            self._rows += rows

    def fitting(self, objects: Iterable[Sequence[Coordinates]]) -> list[Sequence[Coordinates]]:
        """Return the first objects, as many as could be added beside the chosen ones."""
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
    """Return the rows that will be left in the objects of converted rows.

    An object is at least as large as its rows that are alive now.
    """
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


async def _next_page(scope: SearchScope, after: ObjectCursor | None) -> DeadObjects:
    return await scope.control.pipeline.mostly_dead_objects(
        older_than_ms=scope.settings.age_ms,
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
    objects: Iterable[tuple[DeadObject, Sequence[Coordinates]]], scope: SearchScope
) -> list[Sequence[Coordinates]]:
    """Return the movable rows of each object of which a rewrite would free much."""
    return [
        _movable(alive, scope) for one, alive in objects if frees_enough(one, alive, scope.topics)
    ]


async def _small_files(scope: SearchScope, chosen: _Chosen) -> list[Sequence[Coordinates]]:
    """Return the rows of small files that are worth joining, of paused and parked partitions."""
    settings = scope.settings
    rows = await scope.control.pipeline.held_back_rows(
        max_file_bytes=small_file_bytes(settings),
        more_than=settings.max_rows,
        stuck_for_ms=_STUCK_MS,
        limit=settings.max_batches_per_run,
    )
    files = chosen.fitting(outgrown_files(_movable(rows, scope)))
    return files if is_worth_joining(files, settings.max_rows) else []


async def _rows_by_object(
    control: ControlPlane, ids: Collection[ObjectId]
) -> Mapping[ObjectId, Sequence[Coordinates]]:
    found: dict[ObjectId, list[Coordinates]] = defaultdict(list)
    for row in await control.pipeline.coordinates_in([*ids]) if ids else []:
        found[row.object_id].append(row)
    return found


def _movable(rows: Iterable[Coordinates], scope: SearchScope) -> list[Coordinates]:
    return [
        row for row in rows if row.topic_id in scope.topics and _partition(row) not in scope.spared
    ]


def _partition(row: Coordinates) -> TopicPartition:
    return TopicPartition(row.topic_id, row.partition)


def _bytes(rows: Iterable[Coordinates]) -> int:
    return sum(row.byte_size for row in rows)
