"""From the claimed rows of scattered partitions to split files. Pure.

Two kinds of objects hold scattered rows, and they are read differently:

- Blocks are small and each holds rows of many partitions. Consecutive ones are read whole, once,
  until they make up one split file: a request per block.
- Split files are large. Taken together, as many as there are, they are cut by ranges of
  partitions, each of which makes one new file: a request per old and new file. So every partition
  has one run of rows afterwards, however many files it was scattered over before.

What one pass leaves behind has few rows or large ones, so the passes come to an end.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from stratalog.control.model import Coordinates
from stratalog.control.pipeline_model import ClaimToken
from stratalog.ids import ObjectId, TopicId, TopicPartition
from stratalog.pipeline.merge_plan import ClaimedRows
from stratalog.pipeline.select import TopicFacts
from stratalog.pipeline.tasks import SplitPlan, SplitTask
from stratalog.settings import TieringSettings

_LARGE_PART = 8
"""An object is large if the rows to be moved out of it make more than this part of a file."""


class _Part(NamedTuple):
    """What is said of a partition beside its rows."""

    token: ClaimToken
    topic_name: str


_Parts = Mapping[TopicPartition, _Part]


def plan_splits(
    claimed: Iterable[ClaimedRows], topics: Mapping[TopicId, TopicFacts], settings: TieringSettings
) -> list[SplitTask]:
    """Bring rows together that are scattered. What has nothing to come together with stays."""
    objects, parts = _by_object(claimed, topics)
    chosen = objects[: settings.splitter_max_files_per_run]
    small = [rows for rows in chosen if not _is_large(rows, settings)]
    large = [rows for rows in chosen if _is_large(rows, settings)]
    files = [
        *_whole_objects(small, settings.split_file_bytes),
        *_partition_ranges(large, settings.split_file_bytes),
    ]
    tasks = [_task(rows, parts, least_rows=2) for rows in files]
    return [task for task in tasks if _is_worthwhile(task)]


def plan_rewrites(
    claimed: Iterable[ClaimedRows], topics: Mapping[TopicId, TopicFacts], settings: TieringSettings
) -> list[SplitTask]:
    """Move rows out of objects that are mostly dead, so that those can go: all of them."""
    objects, parts = _by_object(claimed, topics)
    files = _whole_objects(objects, settings.split_file_bytes)
    tasks = (_task(rows, parts, least_rows=1) for rows in files)
    return [task for task in tasks if task.parts]


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


def _whole_objects(
    objects: Iterable[Sequence[Coordinates]], file_bytes: int
) -> Iterator[list[Coordinates]]:
    """Consecutive objects, as many as fit into a file."""
    file: list[Coordinates] = []
    size_bytes = 0
    for rows in objects:
        if file and size_bytes + _bytes(rows) > file_bytes:
            yield file
            file, size_bytes = [], 0
        file.extend(rows)
        size_bytes += _bytes(rows)
    if file:
        yield file


def _partition_ranges(
    objects: Iterable[Sequence[Coordinates]], file_bytes: int
) -> Iterator[list[Coordinates]]:
    """All rows of neighbouring partitions, as many as fit into a file."""
    by_partition = _by_partition(row for rows in objects for row in rows)
    return _whole_objects((by_partition[key] for key in sorted(by_partition)), file_bytes)


def _task(rows: Iterable[Coordinates], parts: _Parts, *, least_rows: int) -> SplitTask:
    by_partition = _by_partition(rows)
    return SplitTask(
        parts=[
            SplitPlan(token=parts[key].token, topic_name=parts[key].topic_name, rows=run)
            for key in sorted(by_partition)
            if len(run := _longest_run(by_partition[key])) >= least_rows
        ]
    )


def _by_partition(rows: Iterable[Coordinates]) -> dict[TopicPartition, list[Coordinates]]:
    by_partition: dict[TopicPartition, list[Coordinates]] = defaultdict(list)
    for row in rows:
        by_partition[TopicPartition(row.topic_id, row.partition)].append(row)
    return by_partition


def _longest_run(rows: list[Coordinates]) -> list[Coordinates]:
    """Rows without a hole between them. What is left out stays where it is, until the next run."""
    rows.sort(key=lambda row: row.base_offset)
    best: list[Coordinates] = []
    run: list[Coordinates] = []
    for row in rows:
        if run and row.base_offset != run[-1].last_offset + 1:
            best, run = max(best, run, key=len), []
        run.append(row)
    return max(best, run, key=len)


def _is_worthwhile(task: SplitTask) -> bool:
    """Whether anything comes together that was apart."""
    return len({row.object_id for part in task.parts for row in part.rows}) > 1


def _bytes(rows: Iterable[Coordinates]) -> int:
    return sum(row.byte_size for row in rows)
