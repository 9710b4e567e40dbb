"""From the claimed rows of partitions in small pieces to split files. Pure.

Two kinds of objects hold such rows, and they are read differently:

- Small ones, most of them blocks, each with rows of many partitions. They are read whole, one
  after the other in the order of their commits, until they make up one split file: a request per
  object.
- Large ones, split files all of them. A partition gets some rows in each. Where those become many,
  the files are read together and cut by ranges of partitions, each of which makes a new one: a
  request per old and new file. Then every partition has one run of rows, in one file.

Either way an old piece stays until several times its size has come after it. So the pieces of a
partition are few of each size, and a byte is copied once for each size that its piece had: as
often as the logarithm of what comes together. What a pass leaves behind has few rows or large
ones, so the passes come to an end.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from stratalog.control.log.commit_plan import MAX_ROW_BYTES
from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import ClaimToken
from stratalog.ids import ObjectId, TopicId, TopicPartition
from stratalog.pipeline.plan.merge_plan import ClaimedRows
from stratalog.pipeline.plan.selection import SMALL_PART, TopicFacts
from stratalog.pipeline.plan.tasks import SplitPlan, SplitTask
from stratalog.settings import TieringSettings

_LARGE_PART = 8
"""An object is large if the rows to be moved out of it make more than this part of a file."""
_FAN_IN = 4
"""A piece is copied again when so many times its size has come after it."""
_MANY_PART = 2
"""Rows in large objects are many if they make more than this part of what a partition may have:
the rest is for rows in small ones."""
_SOME_PART = 8
"""Once one partition has many, those that have more than this part come along."""


class _Part(NamedTuple):
    """What is said of a partition beside its rows."""

    token: ClaimToken
    topic_name: str


_Parts: TypeAlias = Mapping[TopicPartition, _Part]
_ByPartition: TypeAlias = dict[TopicPartition, list[Coordinates]]


def plan_splits(
    claimed: Iterable[ClaimedRows], topics: Mapping[TopicId, TopicFacts], settings: TieringSettings
) -> list[SplitTask]:
    """Bring rows together that are scattered. What has nothing to come together with stays."""
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
    tasks = [_task(rows, parts) for rows in files]
    return [task for task in tasks if _objects(task) > 1]


def plan_rewrites(
    claimed: Iterable[ClaimedRows], topics: Mapping[TopicId, TopicFacts], settings: TieringSettings
) -> list[SplitTask]:
    """Move rows out of objects that are mostly dead, so that those can go: all of them."""
    objects, parts = _by_object(claimed, topics)
    files = _files(objects, settings.split_file_bytes)
    return [replace(_task(rows, parts), salvages=True) for rows in files]


def outgrown_files(rows: Iterable[Coordinates]) -> list[list[Coordinates]]:
    """The rows of each object that has been outgrown, in the order of their commits."""
    objects: dict[ObjectId, list[Coordinates]] = defaultdict(list)
    for row in rows:
        objects[row.object_id].append(row)
    return [*_outgrown(sorted(objects.values(), key=_committed))]


def is_worth_joining(files: Sequence[Sequence[Coordinates]], max_rows: int) -> bool:
    """Whether one file instead of these would spare a partition many rows, or the store many
    objects.

    A row that is kept elsewhere may lie between those of a partition. Then only the longest run of
    them moves, so that some files stay; where most would, the same bytes would be moved for ever.
    """
    found = _by_partition(row for rows in files for row in rows)
    runs = [longest_run(rows) for rows in found.values()]
    if any(
        len(run) * _MANY_PART > max_rows and len(run) >= SMALL_PART * rows_needed(run)
        for run in runs
    ):
        return True
    moved = {row for run in runs for row in run}
    freed = sum(moved.issuperset(rows) for rows in files)
    return freed > 1 and freed * _MANY_PART > max_rows


def small_file_bytes(settings: TieringSettings) -> int:
    """Up to which size an object counts as small."""
    return settings.split_file_bytes // _LARGE_PART


def rows_needed(rows: Sequence[Coordinates]) -> int:
    """How many rows a split file would have for these, which follow each other."""
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
    """The rows of each object, the objects in the order of their commits."""
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


def _outgrown(pieces: Sequence[list[Coordinates]]) -> Sequence[list[Coordinates]]:
    """Without those at the front behind which there is not enough yet."""
    behind_bytes = sum(_bytes(rows) for rows in pieces)
    for at, rows in enumerate(pieces):
        size_bytes = _bytes(rows)
        behind_bytes -= size_bytes
        if size_bytes * _FAN_IN <= behind_bytes:
            return pieces[at:]
    return ()


def _scattered(
    objects: Iterable[Sequence[Coordinates]], settings: TieringSettings
) -> list[list[Coordinates]]:
    """The rows in large objects of each partition that has many, and of those that come along."""
    found = _by_partition(row for rows in objects for row in rows)
    if not any(len(rows) * _MANY_PART > settings.max_rows for rows in found.values()):
        return []
    runs = [_newest_pieces(rows) for _, rows in sorted(found.items())]
    return [
        run
        for run in runs
        if len(run) * _SOME_PART > settings.max_rows and len(run) >= SMALL_PART * rows_needed(run)
    ]


def _newest_pieces(rows: Iterable[Coordinates]) -> list[Coordinates]:
    """Of a partition's rows those that are worth another copy: without the full ones at their
    front, and those behind which there is not enough yet."""
    run = longest_run(rows)
    full = [at for at, row in enumerate(run) if row.byte_size * SMALL_PART > MAX_ROW_BYTES]
    pieces = _outgrown([[row] for row in run[full[-1] + 1 if full else 0 :]])
    return [row for [row] in pieces]


def _files(groups: Iterable[Sequence[Coordinates]], file_bytes: int) -> Iterator[list[Coordinates]]:
    """Consecutive groups of rows, as many as fit into a file."""
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


def _task(rows: Iterable[Coordinates], parts: _Parts) -> SplitTask:
    return SplitTask(
        parts=[
            SplitPlan(
                token=parts[key].token, topic_name=parts[key].topic_name, rows=longest_run(found)
            )
            for key, found in sorted(_by_partition(rows).items())
        ]
    )


def _by_partition(rows: Iterable[Coordinates]) -> _ByPartition:
    by_partition: _ByPartition = defaultdict(list)
    for row in rows:
        by_partition[TopicPartition(row.topic_id, row.partition)].append(row)
    return by_partition


def longest_run(rows: Iterable[Coordinates]) -> list[Coordinates]:
    """Rows without a hole between them. What is left out stays where it is, until the next run."""
    best: list[Coordinates] = []
    run: list[Coordinates] = []
    for row in sorted(rows, key=lambda row: row.base_offset):
        if run and row.base_offset != run[-1].last_offset + 1:
            best, run = max(best, run, key=len), []
        run.append(row)
    return max(best, run, key=len)


def _objects(task: SplitTask) -> int:
    """How many objects are read for a file."""
    return len({row.object_id for part in task.parts for row in part.rows})


def _bytes(rows: Iterable[Coordinates]) -> int:
    return sum(row.byte_size for row in rows)
