"""Freshly written blocks in memory, from which consumers at the head are served.

A block enters the cache when its commit has answered, because only then are the offsets known. It
is stamped once, at that time, and every reader is handed the same memory. The uploaded buffers are
never written to, because an upload that was given up may still be reading them; a stamped copy of
the header is kept beside each batch instead. A batch is a view into the frame of its request and
keeps all of the frame alive. So batches are copied if together they are less than half of their
frame: no more than twice the counted bytes are held. Only writes fill the cache, so that reads of
old data push nothing out.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stratalog.batch.entry import EntryBatch
from stratalog.batch.header import HEADER_BYTES, TimestampType
from stratalog.batch.stamp import stamp, stamp_append_time_in_header
from stratalog.block.block import SealedBlock
from stratalog.control.log.model import CommitAnswer, CommitOutcome
from stratalog.ids import ObjectId, Offset
from stratalog.pieces import Part

_OVERHEAD_BYTES = 400
"""The memory of a cached batch beyond its data: two buffers, and the request frame around them."""
_PARTS = 2
"""The parts of a batch: a header of its own, and the records where they were received."""


@dataclass(slots=True)
class _FreshBlock:
    """The accepted batches of a block, in its byte order. The batches of a row are neighbours."""

    size_bytes: int = 0
    starts: list[int] = field(default_factory=list)
    sums: list[int] = field(default_factory=lambda: [0])
    """The bytes of all batches before each one, and of all."""
    last_offsets: list[int] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)

    def add(self, position: int, batch: EntryBatch, answer: CommitAnswer, is_copied: bool) -> None:
        size_bytes = len(batch.data)
        self.starts.append(position)
        self.sums.append(self.sums[-1] + size_bytes)
        self.last_offsets.append(answer.base_offset + batch.header.last_offset_delta)
        self.parts += _stamped(batch, answer, is_copied=is_copied)
        self.size_bytes += size_bytes + _OVERHEAD_BYTES


class FreshAnswer(NamedTuple):
    parts: list[Part]
    size_bytes: int
    next_offset: Offset
    """The offset after the last batch of the answer."""
    reaches_end: bool
    """True if the answer ends with the row."""


class FreshRow(NamedTuple):
    """The batches of one row, stamped as they must be read."""

    block: _FreshBlock
    first: int
    end: int

    def select(self, offset: Offset, max_bytes: int, *, at_least_one: bool) -> FreshAnswer:
        """Select the batches from the one that holds the offset, as many as there is room for."""
        block = self.block
        first = bisect_left(block.last_offsets, offset, self.first, self.end)
        if first == self.end:
            return FreshAnswer([], 0, offset, True)
        sums, start = block.sums, block.sums[first]
        end = bisect_right(sums, start + max_bytes, first + 1, self.end + 1) - 1
        if end == first and at_least_one:
            end = first + 1
        if end == first:
            return FreshAnswer([], 0, offset, False)
        return FreshAnswer(
            block.parts[_PARTS * first : _PARTS * end],
            sums[end] - start,
            Offset(block.last_offsets[end - 1] + 1),
            end == self.end,
        )


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
            fresh.add(position, batch, answer, is_copied=id(batch.data.obj) in thin)
        if fresh.size_bytes > self._max_bytes or not fresh.parts:
            return
        self._blocks[block.commit.object_id] = fresh
        self.size_bytes += fresh.size_bytes
        while self.size_bytes > self._max_bytes:
            _, oldest = self._blocks.popitem(last=False)
            self.size_bytes -= oldest.size_bytes

    def find(self, object_id: ObjectId, start: int, end: int) -> FreshRow | None:
        """Find the row of the bytes `[start, end)` of a block. None if it is not cached."""
        block = self._blocks.get(object_id)
        if block is None:
            self.misses += 1
            return None
        self.hits += 1
        self._blocks.move_to_end(object_id)
        return _row(block, start, end)

    def position(self, object_id: ObjectId, start: int, end: int, offset: Offset) -> int | None:
        """Find the position of the batch that holds an offset of the row of these bytes."""
        block = self._blocks.get(object_id)
        if block is None:
            return None
        row = _row(block, start, end)
        place = bisect_left(block.last_offsets, offset, row.first, row.end)
        return block.starts[place] if place < row.end else None


def _row(block: _FreshBlock, start: int, end: int) -> FreshRow:
    first = bisect_left(block.starts, start)
    return FreshRow(block, first, bisect_left(block.starts, end, first))


def _thin_frames(views: Iterable[memoryview]) -> set[int]:
    """Return the ids of the buffers of which the views are less than half."""
    frames: dict[int, int] = {}
    used: Counter[int] = Counter()
    for view in views:
        frames[id(view.obj)] = memoryview(view.obj).nbytes
        used[id(view.obj)] += len(view)
    return {frame for frame, size_bytes in frames.items() if 2 * used[frame] < size_bytes}


def _stamped(batch: EntryBatch, answer: CommitAnswer, *, is_copied: bool) -> list[Part]:
    header, body = bytearray(batch.data[:HEADER_BYTES]), batch.data[HEADER_BYTES:]
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        stamp_append_time_in_header(header, body, batch.header, answer.append_time_ms)
    stamp(header, 0, base_offset=answer.base_offset, leader_epoch=answer.leader_epoch)
    return [header, bytearray(body) if is_copied else body]
