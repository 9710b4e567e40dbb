"""The pipeline with many partitions that each get one small batch a minute.

The model is a small part of 10,000 partitions with one batch of 1 KB a minute each, for two days:
80 partitions, two blocks a minute with 40 batches each, split files of the same part of their size.
The counts per partition, per block and per byte are the same as at full size. The planner is
the real one; only the moving of bytes is left out.

These bounds hold at any time with the defaults and an age of one hour, and are asserted here:

- A partition has no more rows than `max_rows`, plus the young ones and the ones that come between
  two runs: 64 + 60 + 5.
- The objects are the blocks of the last two hours (the young ones, and the ones that wait until
  a partition has too many rows), and split files of an average above an eighth of their size.
- There are no more than two requests to read for every block that was ever written, and a byte is
  copied no more than four times, the copy into its segment included.
- Records are in a segment after `segment.ms` and the age, at the latest, once the next run is over.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.unit.pipeline.lab import Lab
from tests.unit.pipeline.rows import FACTS, TOPIC, aged, claimed, joined, row

from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import UnitKind
from stratalog.pipeline.kinds.merge_plan import plan_merges
from stratalog.pipeline.kinds.registry import AGED_KINDS
from stratalog.pipeline.kinds.split_model import SplitTask
from stratalog.pipeline.kinds.split_plan import plan_splits
from stratalog.pipeline.plan.cost import cost_of
from stratalog.pipeline.plan.selection import select
from stratalog.pipeline.plan.tasks import Task
from stratalog.settings import DAY_MS, MIB, MINUTE_MS, TieringSettings

SCALE = 125
PARTITIONS = 10_000 // SCALE
BATCH_BYTES = 1000
BLOCKS_PER_MINUTE = 2
AGE_MINUTES = 60
RUN_MINUTES = 5
DAYS = 2
SETTINGS = TieringSettings(
    split_file_bytes=256 * MIB // SCALE,
    # Runs come every minute, and the model has one in five.
    splitter_max_files_per_run=1000 * RUN_MINUTES // SCALE,
)


@dataclass
class Model:
    partitions: int = PARTITIONS
    batch_bytes: int = BATCH_BYTES
    segment_ms: int = DAY_MS
    rows: list[list[Coordinates]] = field(init=False)
    minute: int = 0
    offset: int = 0
    objects: int = 0
    requests: int = 0
    copied_bytes: int = 0
    segments: int = 0
    most_rows: int = 0
    most_objects: int = 0
    longest_wait_ms: int = 0

    def __post_init__(self) -> None:
        self.rows = [[] for _ in range(self.partitions)]

    def write(self) -> None:
        """One batch for each partition, in blocks that each hold a part of them."""
        for index, rows in enumerate(self.rows):
            block = self.objects + 1 + index % BLOCKS_PER_MINUTE
            rows.append(
                row(
                    index,
                    self.offset,
                    size=self.batch_bytes,
                    block=block,
                    committed_ms=self.minute * MINUTE_MS,
                    byte_offset=index // BLOCKS_PER_MINUTE * self.batch_bytes,
                )
            )
        self.objects += BLOCKS_PER_MINUTE
        self.offset += 1
        self.minute += 1

    def run(self) -> None:
        now_ms = self.minute * MINUTE_MS
        topics = {TOPIC: FACTS._replace(segment_ms=self.segment_ms)}
        old = [self._aged(index) for index in range(self.partitions)]
        facts = [
            aged(
                index,
                rows=len(rows),
                size=sum(r.byte_size for r in rows),
                objects=len({r.object_id for r in rows}),
                oldest_ms=rows[0].oldest_commit_ms,
            )
            for index, rows in enumerate(old)
            if rows
        ]
        selection = select(facts, topics, SETTINGS, now_ms, AGED_KINDS)
        merges = [claimed(old[one.partition]) for one in selection.by_kind["merge"]]
        splits = [
            claimed(old[one.partition], kind=UnitKind.SPLIT) for one in selection.by_kind["split"]
        ]
        tasks: list[Task] = [
            *plan_merges(merges, topics, SETTINGS, now_ms),
            *plan_splits(splits, topics, SETTINGS),
        ]
        for task in tasks:
            self._apply(task)
        self.longest_wait_ms = max(self.longest_wait_ms, now_ms - self._first_commit_ms())

    def _first_commit_ms(self) -> int:
        """Of all that is in no segment: offset n was committed in minute n."""
        return min(rows[0].base_offset for rows in self.rows) * MINUTE_MS

    def _aged(self, index: int) -> list[Coordinates]:
        cutoff_ms = (self.minute - AGE_MINUTES) * MINUTE_MS
        return [each for each in self.rows[index] if each.committed_ms <= cutoff_ms]

    def _apply(self, task: Task) -> None:
        cost = cost_of([task])
        self.requests += cost.read_requests
        self.copied_bytes += cost.bytes
        if isinstance(task, SplitTask):
            self.objects += 1
            for part in task.parts:
                self._swap(part.rows, joined(part.rows, self.objects))
        else:
            self.segments += len(task.parts)
            for segment in task.parts:
                self._swap(segment.rows, [])

    def _swap(self, old: Sequence[Coordinates], new: list[Coordinates]) -> None:
        rows = self.rows[old[0].partition]
        at = next(n for n, each in enumerate(rows) if each.base_offset == old[0].base_offset)
        rows[at : at + len(old)] = new

    def look(self) -> None:
        """After a run, when there is the least, and a moment before it, when there is the most."""
        self.most_rows = max(self.most_rows, *map(len, self.rows))
        self.most_objects = max(self.most_objects, len(self.sizes()))

    def sizes(self) -> dict[object, int]:
        sizes: dict[object, int] = {}
        for rows in self.rows:
            for each in rows:
                sizes[each.object_id] = sizes.get(each.object_id, 0) + each.byte_size
        return sizes


def test_thin_partitions_converge_to_few_rows_objects_and_requests() -> None:
    model = Model()
    for minute in range(DAYS * 24 * 60):
        model.write()
        if minute % RUN_MINUTES == 0:
            if minute % 60 == 0:
                model.look()
            model.run()
    written_bytes = model.offset * PARTITIONS * BATCH_BYTES
    blocks = model.offset * BLOCKS_PER_MINUTE
    assert model.most_rows <= SETTINGS.max_rows + AGE_MINUTES + RUN_MINUTES
    waiting_blocks = (AGE_MINUTES + SETTINGS.max_rows + RUN_MINUTES) * BLOCKS_PER_MINUTE
    assert model.most_objects <= waiting_blocks + written_bytes / DAYS / (
        SETTINGS.split_file_bytes / 8
    )
    assert model.requests <= 2 * blocks
    assert model.copied_bytes <= 4 * written_bytes
    assert model.longest_wait_ms <= DAY_MS + AGE_MINUTES * MINUTE_MS
    assert model.segments <= PARTITIONS * DAYS


@pytest.mark.parametrize("days", [1, 7])
@pytest.mark.parametrize("batch_bytes", [100, 1000])
def test_records_that_are_joined_with_newer_ones_wait_no_longer_for_their_segment(
    days: int, batch_bytes: int
) -> None:
    """A row takes a week of the smallest batches, and every split makes its commit time newer."""
    model = Model(partitions=1, batch_bytes=batch_bytes, segment_ms=days * DAY_MS)
    for minute in range((2 * days + 1) * 24 * 60):
        model.write()
        if minute % RUN_MINUTES == 0:
            model.run()
    assert model.longest_wait_ms <= model.segment_ms + AGE_MINUTES * MINUTE_MS
    assert model.segments >= 2


async def test_an_hour_of_thin_partitions_on_a_real_control_plane_is_what_the_model_says(
    tmp_path: Path,
) -> None:
    """With nothing left out: blocks are committed, moved and swept, and everything is read."""
    settings = TieringSettings(age_ms=0, max_rows=16, split_file_bytes=100_000)
    blocks = requests = 0
    async with Lab.open(tmp_path, tiering=settings) as lab:
        topic = await lab.topic(20)
        for minute in range(60):
            blocks += bool(await lab.write(topic, {p: [1] for p in range(20)}))
            if minute % RUN_MINUTES == 0:
                rows = [await lab.rows(topic, p) for p in range(20)]
                assert max(rows) <= settings.max_rows + RUN_MINUTES
                requests += (await lab.run()).requests
                await lab.clean()
                assert len(await lab.keys("blocks/")) <= settings.max_rows
        assert len(await lab.keys("splits/")) <= blocks / settings.max_rows
        assert requests <= 2 * blocks
        await lab.check(topic)
        await lab.check_clean()
