"""Freshly written blocks in memory, from which consumers at the head are served.

A block enters the cache when its commit has answered, because only then are the offsets known. The
uploaded buffers are never written to, because an upload that was given up may still be reading
them; a stamped copy of the header is kept beside each batch instead. A batch is a view into the
frame of its request and keeps all of the frame alive. So batches are copied if together they are
less than half of their frame: no more than twice the counted bytes are held. Only writes fill the
cache, so that reads of old data push nothing out.
"""

from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from stratalog.batch.entry import EntryBatch
from stratalog.batch.header import HEADER_BYTES, TimestampType
from stratalog.batch.stamp import stamp, stamp_append_time
from stratalog.block.block import SealedBlock
from stratalog.control.log.model import CommitAnswer, CommitOutcome
from stratalog.ids import ObjectId

_OVERHEAD_BYTES = 400
"""The memory of a cached batch beyond its data: two buffers, and the request frame around them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StampedBatch:
    last_offset: int
    parts: Sequence[memoryview | bytearray]

    @property
    def size_bytes(self) -> int:
        return sum(len(part) for part in self.parts)


@dataclass(slots=True)
class _FreshBlock:
    size_bytes: int = 0
    positions: list[int] = field(default_factory=list)
    batches: list[StampedBatch] = field(default_factory=list)

    def add(self, position: int, batch: StampedBatch) -> None:
        self.positions.append(position)
        self.batches.append(batch)
        self.size_bytes += batch.size_bytes + _OVERHEAD_BYTES


class FreshBlocks:
    """Blocks by id, the least recently used ones leave first."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._blocks: OrderedDict[ObjectId, _FreshBlock] = OrderedDict()
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0

    def __contains__(self, object_id: ObjectId) -> bool:
        return object_id in self._blocks

    def add(self, block: SealedBlock, answers: Sequence[CommitAnswer]) -> None:
        """Keep the batches that were accepted, stamped as they must be read."""
        fresh = _FreshBlock()
        accepted = [
            (batch, place.byte_offset, answer)
            for batch, place, answer in zip(
                block.batches, block.commit.batches, answers, strict=True
            )
            if answer.outcome is CommitOutcome.ACCEPTED
        ]
        thin = _thin_frames(batch.data for batch, _, _ in accepted)
        for batch, position, answer in accepted:
            fresh.add(position, _stamped(batch, answer, is_copied=id(batch.data.obj) in thin))
        if fresh.size_bytes > self._max_bytes or not fresh.batches:
            return
        self._blocks[block.commit.object_id] = fresh
        self.size_bytes += fresh.size_bytes
        while self.size_bytes > self._max_bytes:
            _, oldest = self._blocks.popitem(last=False)
            self.size_bytes -= oldest.size_bytes

    def find(self, object_id: ObjectId, start: int, end: int) -> Sequence[StampedBatch] | None:
        """Find the batches in the bytes `[start, end)` of a block. None if it is not cached."""
        block = self._blocks.get(object_id)
        if block is None:
            self.misses += 1
            return None
        self.hits += 1
        self._blocks.move_to_end(object_id)
        first = bisect_left(block.positions, start)
        return block.batches[first : bisect_left(block.positions, end)]


def _thin_frames(views: Iterable[memoryview]) -> set[int]:
    """Return the ids of the buffers of which the views are less than half."""
    frames: dict[int, int] = {}
    used: Counter[int] = Counter()
    for view in views:
        frames[id(view.obj)] = memoryview(view.obj).nbytes
        used[id(view.obj)] += len(view)
    return {frame for frame, size_bytes in frames.items() if 2 * used[frame] < size_bytes}


def _stamped(batch: EntryBatch, answer: CommitAnswer, *, is_copied: bool) -> StampedBatch:
    parts: list[memoryview | bytearray]
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        whole = bytearray(batch.data)
        stamp_append_time(whole, 0, batch.header, answer.append_time_ms)
        parts = [whole]
    else:
        body = batch.data[HEADER_BYTES:]
        parts = [bytearray(batch.data[:HEADER_BYTES]), bytearray(body) if is_copied else body]
    stamp(parts[0], 0, base_offset=answer.base_offset, leader_epoch=answer.leader_epoch)
    return StampedBatch(
        last_offset=answer.base_offset + batch.header.last_offset_delta, parts=parts
    )
