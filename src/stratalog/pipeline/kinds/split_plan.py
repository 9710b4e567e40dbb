"""The plan of a split: claimed rows of partitions with small rows, brought together in files. Pure.

Two kinds of objects hold such rows, and they are read differently:

- Small ones, most of them blocks, each with rows of many partitions. They are read whole, one
  after the other in the order of their commits, until they fill one split file: a request per
  object.
- Large ones, split files all of them. A partition gets some rows in each. Where those become many,
  the files are read together and cut by ranges of partitions, each of which makes a new file: a
  request per old and new file. Then every partition has one run of rows, in one file.

Either way an old object stays until several times its size has come after it. So a partition has
few objects of each size, and a byte is copied once for each size that its object had: as often as
the logarithm of the bytes that come together. A pass leaves behind few rows or large ones, so that
the passes come to an end.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from stratalog.control.log.commit_plan import MAX_ROW_BYTES
from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import ClaimToken
from stratalog.ids import ObjectId, TopicId, TopicPartition
from stratalog.pipeline.kinds.split_model import SplitPlan, SplitTask
from stratalog.pipeline.plan.claimed_rows import ClaimedRows
from stratalog.pipeline.topic_facts import TopicFacts
from stratalog.settings import TieringSettings

_SMALL_PART = 2
"""Rows are small if they could be so many times larger."""
_LARGE_PART = 8
"""An object is large if the rows to be moved out of it make more than this part of a file."""
_FAN_IN = 4
"""An object is copied again when so many times its size has come after it."""
_MANY_PART = 2
"""Rows in large objects are many if they make more than this part of the rows that a partition may
have: the rest is for rows in small objects."""
_SOME_PART = 8
"""Once one partition has many, the partitions that have more than this part come along."""


class _Part(NamedTuple):
    """The facts about a partition that a split file needs beside its rows."""

    token: ClaimToken
    topic_name: str


_Parts: TypeAlias = Mapping[TopicPartition, _Part]
_ByPartition: TypeAlias = dict[TopicPartition, list[Coordinates]]


def plan_splits(
    claimed: Iterable[ClaimedRows], topics: Mapping[TopicId, TopicFacts], settings: TieringSettings
) -> list[SplitTask]:
    """Bring scattered rows together. Rows that would be alone in their file stay where they are."""
    objects, parts = _by_object(claimed, topics)
    small = [rows for rows in objects if not _is_large(rows, settings)]
    large = [rows for rows in objects if _is_large(rows, settings)]
    groups = _outgrown(small)[: settings.splitter_max_files_per_run]
    files = [
        *_files(groups, settings.split_file_bytes),
        *_files(_scattered(large, settings), settings.split_file_bytes),
    ]
    if tasks := _tasks(files, parts):
        return tasks
    # Where large and small objects take turns in a partition, neither kind has a run of its rows.
    return _tasks(_files(_scattered(objects, settings), settings.split_file_bytes), parts)


def _tasks(files: Iterable[Sequence[Coordinates]], parts: _Parts) -> list[SplitTask]:
    tasks = [SplitTask(parts=_plan_file(rows, parts)) for rows in files]
    return [task for task in tasks if _objects(task) > 1]


def plan_files(
    claimed: Iterable[ClaimedRows], topics: Mapping[TopicId, TopicFacts], settings: TieringSettings
) -> list[list[SplitPlan]]:
    """Plan split files for all the rows, object by object in the order of their commits."""
    objects, parts = _by_object(claimed, topics)
    files = _files(objects, settings.split_file_bytes)
    return [_plan_file(rows, parts) for rows in files]


def has_small_rows(rows: int, size_bytes: int) -> bool:
    """Tell whether the rows are, on average, much smaller than they could be."""
    return rows * MAX_ROW_BYTES >= _SMALL_PART * size_bytes


def outgrown_files(rows: Iterable[Coordinates]) -> list[list[Coordinates]]:
    """Return the rows of each outgrown object, the objects in the order of their commits."""
    objects: dict[ObjectId, list[Coordinates]] = defaultdict(list)
    for row in rows:
        objects[row.object_id].append(row)
    return [*_outgrown(sorted(objects.values(), key=_committed))]


def is_worth_joining(files: Sequence[Sequence[Coordinates]], max_rows: int) -> bool:
    """Tell whether joining the files spares a partition many rows, or the store many objects.

    A row in another object may lie between the rows of a partition. Then only the longest run of
    rows moves, and some of the files stay. If most of them stayed, the same bytes would be moved
    for ever.
    """
    found = _by_partition(row for rows in files for row in rows)
    runs = [longest_run(rows) for rows in found.values()]
    if any(
        len(run) * _MANY_PART > max_rows and len(run) >= _SMALL_PART * rows_needed(run)
        for run in runs
    ):
        return True
    moved = {row for run in runs for row in run}
    freed = sum(moved.issuperset(rows) for rows in files)
    return freed > 1 and freed * _MANY_PART > max_rows


def small_file_bytes(settings: TieringSettings) -> int:
    """Return the size up to which an object counts as small."""
    return settings.split_file_bytes // _LARGE_PART


def rows_needed(rows: Sequence[Coordinates]) -> int:
    """Return the number of rows that a split file has for these, which follow each other."""
    needed = size_bytes = 0
    before: Coordinates | None = None
    for row in rows:
        if (
            before is None
            or size_bytes + row.byte_size > MAX_ROW_BYTES
            or row.leader_epoch != before.leader_epoch
            or row.timestamp_type is not before.timestamp_type
        ):
            needed, size_bytes = needed + 1, 0
        size_bytes += row.byte_size
        before = row
    return needed


def _by_object(
    claimed: Iterable[ClaimedRows], topics: Mapping[TopicId, TopicFacts]
) -> tuple[list[list[Coordinates]], _Parts]:
    """Return the rows of each object, the objects in the order of their commits."""
    objects: dict[ObjectId, list[Coordinates]] = defaultdict(list)
    parts: dict[TopicPartition, _Part] = {}
    for one in claimed:
        partition = one.claim.partition
        parts[partition] = _Part(one.claim.token, topics[partition.topic_id].name)
        for row in one.rows:
            objects[row.object_id].append(row)
    return sorted(objects.values(), key=_committed), parts


def _committed(rows: Sequence[Coordinates]) -> tuple[object, ...]:
    return (min(row.committed_ms for row in rows), rows[0].object_id)


def _is_large(rows: Sequence[Coordinates], settings: TieringSettings) -> bool:
    return _bytes(rows) * _LARGE_PART > settings.split_file_bytes


def _outgrown(groups: Sequence[list[Coordinates]]) -> Sequence[list[Coordinates]]:
    """Leave out the groups at the front that have not enough bytes behind them yet."""
    behind_bytes = sum(_bytes(rows) for rows in groups)
    for at, rows in enumerate(groups):
        size_bytes = _bytes(rows)
        behind_bytes -= size_bytes
        if size_bytes * _FAN_IN <= behind_bytes:
            return groups[at:]
    return ()


def _scattered(
    objects: Iterable[Sequence[Coordinates]], settings: TieringSettings
) -> list[list[Coordinates]]:
    """Return the rows of each partition that has many in the objects, or enough to come along."""
    found = _by_partition(row for rows in objects for row in rows)
    if not any(len(rows) * _MANY_PART > settings.max_rows for rows in found.values()):
        return []
    runs = [_newest_rows(rows) for _, rows in sorted(found.items())]
    return [
        run
        for run in runs
        if len(run) * _SOME_PART > settings.max_rows and len(run) >= _SMALL_PART * rows_needed(run)
    ]


def _newest_rows(rows: Iterable[Coordinates]) -> list[Coordinates]:
    """Return the rows of a partition that are worth another copy.

    Full rows at the front are left out, and rows that have not enough bytes behind them yet.
    """
    run = longest_run(rows)
    full = [at for at, row in enumerate(run) if row.byte_size * _SMALL_PART > MAX_ROW_BYTES]
    outgrown = _outgrown([[row] for row in run[full[-1] + 1 if full else 0 :]])
    return [row for [row] in outgrown]


def _files(groups: Iterable[Sequence[Coordinates]], file_bytes: int) -> Iterator[list[Coordinates]]:
    """Join consecutive groups of rows, as many as fit into a file."""
    file: list[Coordinates] = []
    size_bytes = 0
    for rows in groups:
        if file and size_bytes + _bytes(rows) > file_bytes:
            yield file
            file, size_bytes = [], 0
        file.extend(rows)
        size_bytes += _bytes(rows)
    if file:
        yield file


def _plan_file(rows: Iterable[Coordinates], parts: _Parts) -> list[SplitPlan]:
    return [
        SplitPlan(token=parts[key].token, topic_name=parts[key].topic_name, rows=longest_run(found))
        for key, found in sorted(_by_partition(rows).items())
    ]


def _by_partition(rows: Iterable[Coordinates]) -> _ByPartition:
    by_partition: _ByPartition = defaultdict(list)
    for row in rows:
        by_partition[TopicPartition(row.topic_id, row.partition)].append(row)
    return by_partition


def longest_run(rows: Iterable[Coordinates]) -> list[Coordinates]:
    """Return the longest run of rows without a hole. The others stay where they are for now."""
    best: list[Coordinates] = []
    run: list[Coordinates] = []
    for row in sorted(rows, key=lambda row: row.base_offset):
        if run and row.base_offset != run[-1].last_offset + 1:
            best, run = max(best, run, key=len), []
        run.append(row)
    return max(best, run, key=len)


def _objects(task: SplitTask) -> int:
    """Count the objects that are read for a file."""
    return len({row.object_id for part in task.parts for row in part.rows})


def _bytes(rows: Iterable[Coordinates]) -> int:
    return sum(row.byte_size for row in rows)
