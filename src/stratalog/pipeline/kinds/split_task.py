"""A split task: rows out of many objects become one object that is sorted by partition and offset.

Each source object is read once. Until all are read, the file's bytes wait in memory, with at most
`READ_AHEAD_BYTES` that are being read, and later the copies in the store's stream. So a task takes
the planned size of the file and some 64 MiB.
"""

from collections import deque
from collections.abc import AsyncIterator, Sequence

from stratalog.block.footer import BlockFooter, FooterPartition, encode_footer
from stratalog.block.keys import split_key
from stratalog.control.log.model import Coordinates
from stratalog.errors import StratalogError
from stratalog.ids import NO_BROKER, ObjectId, TopicPartition
from stratalog.objects.store import Buffer
from stratalog.pipeline.errors import RowFailedError, UnitMismatchError
from stratalog.pipeline.kinds.source_reader import READ_AHEAD_BYTES, ReadBudget, SourceReader
from stratalog.pipeline.kinds.split_model import SplitMade, SplitPartMade, SplitPlan
from stratalog.pipeline.kinds.split_plan import longest_run
from stratalog.pipeline.kinds.split_rows import PartRows, SplitObject
from stratalog.pipeline.kinds.unit_failures import unit_failed
from stratalog.pipeline.plan.object_reads import SourceRow, plan_object_reads
from stratalog.pipeline.plan.tasks import TaskDone, UnitFailed
from stratalog.pipeline.workplace import OpenWorkplace

_JOINED_BYTES = 256 * 1024
"""Small rows are copied together up to this size: to hand the store many small buffers costs more
than the copy."""


async def run_split(
    plans: Sequence[SplitPlan],
    place: OpenWorkplace,
    *,
    salvages: bool = False,
    read_ahead_bytes: int = READ_AHEAD_BYTES,
) -> TaskDone:
    """Write one split file with these parts.

    With `salvages`, a part with a row that cannot be moved keeps its longest run of other rows;
    without it, the whole part fails.
    """
    parts = sorted(
        (_Part(plan, salvages=salvages) for plan in plans), key=lambda part: part.partition
    )
    split = _Split(parts, ReadBudget(read_ahead_bytes))
    await SourceReader(place.objects, split.budget, split, place.pace).read(
        plan_object_reads([part.plan.rows for part in parts])
    )
    return await split.write(place)


class _Part:
    """The rows of one partition while they are being read, in the order of the plan."""

    def __init__(self, plan: SplitPlan, *, salvages: bool) -> None:
        self.plan = plan
        self._salvages = salvages
        self.partition = TopicPartition(plan.rows[0].topic_id, plan.rows[0].partition)
        self.read: list[tuple[Coordinates, memoryview]] = []
        self.errors: list[StratalogError] = []

    @property
    def is_lost(self) -> bool:
        """True if the part cannot be written any more."""
        return bool(self.errors) and not self._salvages

    def fail(self, error: StratalogError) -> None:
        self._note(error)
        self.read = []

    def miss(self, row: Coordinates, error: StratalogError) -> None:
        """Go on without a row if the task salvages, else give up the part."""
        self._note(error)
        good = [(each, data) for each, data in self.read if each is not row]
        self.read = good if self._salvages else []

    def lay_out(self, byte_offset: int) -> PartRows | None:
        """Check and stamp the rows, which will lie in the file from this byte on."""
        while self.read:
            if self.errors:
                self._leave_the_longest_run()
            rows = PartRows(self.partition, byte_offset)
            try:
                for row, data in self.read:
                    rows.add(row, data)
            except RowFailedError as error:
                # The loop stamps the other rows once more, which changes nothing.
                self.miss(error.row, error)
            else:
                return rows
        return None

    def _note(self, error: StratalogError) -> None:
        """Note an error, unless the part is lost already: later errors follow from the first."""
        if not self.is_lost:
            self.errors.append(error)

    def _leave_the_longest_run(self) -> None:
        run = {row.base_offset for row in longest_run(row for row, _ in self.read)}
        self.read = [(row, data) for row, data in self.read if row.base_offset in run]


class _Split:
    """A split file while it is being made."""

    def __init__(self, parts: Sequence[_Part], budget: ReadBudget) -> None:
        self._parts = parts
        self.budget = budget

    def wants(self, source: SourceRow) -> bool:
        return not self._parts[source.part].is_lost

    def take(self, source: SourceRow, data: memoryview) -> None:
        self.budget.give_back(len(data))
        part = self._parts[source.part]
        if not part.is_lost:
            part.read.append((source.row, data))

    def fail(self, source: SourceRow, error: StratalogError) -> None:
        self._parts[source.part].miss(source.row, RowFailedError(source.row, error))

    async def write(self, place: OpenWorkplace) -> TaskDone:
        """Store the good parts. An error of the store fails all of them."""
        now_ms = place.clock.now_ms()
        object_id = ObjectId(place.new_id())
        file = SplitObject(object_id, split_key(object_id))
        laid_out = self._lay_out()
        if not laid_out:
            return TaskDone(failed=self._failed())
        footer = encode_footer(_footer(file, laid_out, now_ms))
        moved = [[row for row, _ in part.read] for part, _ in laid_out]
        try:
            size_bytes = await self._upload(file, laid_out, footer, place)
        except StratalogError as error:
            for part, _ in laid_out:
                part.fail(error)
            return TaskDone(failed=self._failed())
        made = SplitMade(
            object_id=object_id,
            key=file.key,
            size_bytes=size_bytes,
            parts=[
                SplitPartMade(
                    token=part.plan.token,
                    old_rows=old_rows,
                    new_rows=rows.coordinates(file),
                )
                for (part, rows), old_rows in zip(laid_out, moved, strict=True)
            ],
        )
        return TaskDone(made=[made], failed=self._failed())

    async def _upload(
        self,
        file: SplitObject,
        laid_out: Sequence[tuple[_Part, PartRows]],
        footer: bytes,
        place: OpenWorkplace,
    ) -> int:
        data = deque(data for part, _ in laid_out for _, data in part.read)
        # The stream alone holds the bytes from here on, so that it can drop them as they go.
        for part, _ in laid_out:
            part.read = []
        wanted_bytes = laid_out[-1][1].byte_end + len(footer)
        size_bytes = await place.objects.put_stream(file.key, _stream(data, footer))
        if size_bytes != wanted_bytes:
            raise UnitMismatchError(f"{file.key} has {size_bytes} bytes, not {wanted_bytes}")
        return size_bytes

    def _lay_out(self) -> list[tuple[_Part, PartRows]]:
        laid_out: list[tuple[_Part, PartRows]] = []
        byte_offset = 0
        for part in self._parts:
            rows = part.lay_out(byte_offset)
            if rows is not None:
                laid_out.append((part, rows))
                byte_offset = rows.byte_end
        return laid_out

    def _failed(self) -> list[UnitFailed]:
        return [
            unit_failed(part.plan.token, error) for part in self._parts for error in part.errors
        ]


def _footer(
    file: SplitObject, laid_out: Sequence[tuple[_Part, PartRows]], now_ms: int
) -> BlockFooter:
    return BlockFooter(
        block_id=file.object_id,
        broker_id=NO_BROKER,
        created_ms=now_ms,
        partitions=[
            FooterPartition(
                topic_id=part.partition.topic_id,
                topic_name=part.plan.topic_name,
                partition=part.partition.partition,
                batches=rows.footer_ranges(),
            )
            for part, rows in laid_out
        ],
        stamped=True,
    )


async def _stream(data: deque[memoryview], footer: bytes) -> AsyncIterator[Buffer]:
    """Yield the file, and drop each buffer that was yielded."""
    while data:
        group, group_bytes = [data.popleft()], 0
        while data and group_bytes + len(data[0]) <= _JOINED_BYTES:
            group_bytes += len(data[0])
            group.append(data.popleft())
        yield group[0] if len(group) == 1 else b"".join(group)
    yield footer
