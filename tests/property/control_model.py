"""The expected partitions of the control plane, in memory."""

from dataclasses import dataclass, field

from stratalog.control.segments.model import ChainOutcome, SegmentState
from stratalog.ids import ObjectId, SegmentId, TopicPartition

OLD, YOUNG = 1_000, 9_000_000_000_000


@dataclass
class ModelRow:
    base: int
    end: int
    size: int
    timestamp: int
    object_id: ObjectId


@dataclass
class ModelSegment:
    segment_id: SegmentId
    key: TopicPartition
    base: int
    end: int
    size: int
    timestamp: int
    state: SegmentState = SegmentState.COPY_STARTED
    chained: bool = False

    @property
    def waits(self) -> bool:
        """Tell if the segment could be chained."""
        return self.state is SegmentState.COPY_FINISHED and not self.chained

    def doom(self) -> None:
        self.state, self.chained = SegmentState.DELETE_STARTED, False


@dataclass
class ModelPartition:
    segments: list[ModelSegment] = field(default_factory=list)
    """The chained ones."""
    rows: list[ModelRow] = field(default_factory=list)
    leftovers: list[ModelRow] = field(default_factory=list)
    """Rows that a segment has replaced, and that a crash has left behind."""
    log_start: int = 0
    high_watermark: int = 0

    @property
    def block_start(self) -> int:
        return self.rows[0].base if self.rows else self.high_watermark

    @property
    def size(self) -> int:
        return sum(each.size for each in self.segments) + sum(row.size for row in self.rows)

    def append(self, records: int, size: int, timestamp: int, object_id: ObjectId) -> None:
        base, end = self.high_watermark, self.high_watermark + records
        self.rows.append(ModelRow(base, end, size, timestamp, object_id))
        self.high_watermark = end

    def cut(self, log_start: int) -> None:
        self.log_start = max(self.log_start, log_start)
        self.rows = [row for row in self.rows if row.end > self.log_start]
        for segment in self.segments:
            if segment.end <= self.log_start:
                segment.doom()
        self.segments = [segment for segment in self.segments if segment.chained]

    def outcome_of_chaining(self, segment: ModelSegment) -> ChainOutcome | None:
        """None if it does not fit."""
        if segment.end <= self.log_start:
            return ChainOutcome.OVERTAKEN
        start = self.block_start
        overlaps = segment.base < start < segment.end and self.log_start >= start
        return ChainOutcome.CHAINED if segment.base == start or overlaps else None

    def chain(self, segment: ModelSegment, *, crash: bool) -> None:
        segment.chained = True
        self.segments.append(segment)
        self.leftovers += [row for row in self.rows if row.end <= segment.end]
        self.rows = [row for row in self.rows if row.end > segment.end]
        if not crash:
            self.leftovers.clear()


def expire(partition: ModelPartition, retention_bytes: int | None, max_rows: int) -> int:
    """Apply retention to the model, and return how many segments and rows it removed."""
    gone = len(partition.leftovers[:max_rows])
    del partition.leftovers[:gone]
    while gone < max_rows:
        stretches: list[ModelSegment | ModelRow] = [*partition.segments, *partition.rows]
        if not stretches or not _is_due(partition, stretches[0], retention_bytes):
            break
        partition.cut(stretches[0].end)
        gone += 1
    return gone


def _is_due(
    partition: ModelPartition, oldest: ModelSegment | ModelRow, retention_bytes: int | None
) -> bool:
    if retention_bytes is None:
        return oldest.timestamp == OLD
    return partition.size - oldest.size >= retention_bytes


def rows_within(
    partition: ModelPartition, offset: int, max_bytes: int, *, whole: bool
) -> list[tuple[int, int, object]]:
    """The rows from the offset on; with `whole`, until they are `max_bytes`."""
    found: list[tuple[int, int, object]] = []
    total = 0
    for row in partition.rows:
        if row.end > offset and (total < max_bytes or not whole):
            found.append((row.base, row.end - 1, row.object_id))
            total += row.size
    return found


def overlapping(partition: ModelPartition, start: int, end: int) -> list[tuple[int, int]]:
    """The result of a scan, offset by offset: first and last offset of the piece that serves it."""
    named = {-2: partition.log_start, -1: partition.high_watermark}
    start, end = max(named.get(start, start), partition.log_start), named.get(end, end)
    pieces: list[ModelSegment | ModelRow] = [*partition.segments, *partition.rows]
    found: dict[tuple[int, int], None] = {}
    for offset in range(start, min(end, partition.high_watermark)):
        serving = next(each for each in pieces if each.end > offset)
        found[serving.base, serving.end - 1] = None
    return list(found)
