"""A partition's batches from the tiers that hold them, put together again.

Segments come first and rows after them, because that is the order of their offsets; both are read
at the same time. What was found decides, never the partition's migration state. A partition that
fails fails alone.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from stratalog.batch.frames import iter_batches
from stratalog.block.reader import BlockReader, RowsRead, RowsWanted
from stratalog.control.model import Coordinates, FoundBatches, Span
from stratalog.errors import StratalogError
from stratalog.ids import Offset
from stratalog.segment.reader import SegmentReader, SegmentsRead, SegmentsWanted
from stratalog.topic.budget import Wish, fair_shares
from stratalog.topic.errors import remote_reads_off

FIRST_BYTES = 1 << 20
"""What the first batch of a segment counts for in the budget: nobody knows its size yet, and this
is what rows are coalesced to and about the largest batch that topics take."""

Part = memoryview | bytearray | bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A span and where it lives. `end` is the first offset that its reader must not see."""

    span: Span
    found: FoundBatches
    end: Offset


@dataclass(slots=True, kw_only=True)
class TiersRead:
    parts: list[Part] = field(default_factory=list)
    error: StratalogError | None = None
    """Told only if there are no parts: otherwise the reader comes back and hears of it then."""
    next_offset: Offset | None = None
    """Of an answer that begins in segments, an offset at or above its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What is read for one look. `rows` follow `segments` without a gap."""

    max_bytes: int = 0
    segments: SegmentsWanted | None = None
    rows: RowsWanted
    error: StratalogError | None = None


class Tiers:
    def __init__(
        self, *, blocks: BlockReader, segments: SegmentReader, remote_reads: bool = True
    ) -> None:
        self._blocks = blocks
        self._segments = segments
        self._remote_reads = remote_reads

    def refusal(self, found: FoundBatches) -> StratalogError | None:
        """Why what was found is not read, if it is not."""
        return remote_reads_off() if found.segments and not self._remote_reads else None

    async def read(self, looks: Sequence[Look], max_bytes: int) -> list[TiersRead]:
        """Read what was found, dividing the bytes fairly."""
        remote_bytes = await self._remote_bytes(looks)
        wishes = [_wish(*pair, max_bytes) for pair in zip(looks, remote_bytes, strict=True)]
        shares = fair_shares(wishes, max_bytes)
        plans = [_plan(*three) for three in zip(looks, remote_bytes, shares, strict=True)]
        in_segments = [plan.segments for plan in plans if plan.segments is not None]
        if in_segments:
            from_segments, from_blocks = await asyncio.gather(
                self._segments.read(in_segments), self._blocks.read([plan.rows for plan in plans])
            )
        else:
            from_segments, from_blocks = [], await self._blocks.read([plan.rows for plan in plans])
        each = iter(from_segments)
        return [
            _joined(look, plan, None if plan.segments is None else next(each), rows)
            for look, plan, rows in zip(looks, plans, from_blocks, strict=True)
        ]

    async def _remote_bytes(self, looks: Sequence[Look]) -> list[int | StratalogError]:
        """How much each look has in segments: rows are read only if that is less than its share."""
        remote: list[int | StratalogError] = [0] * len(looks)
        places = [place for place, look in enumerate(looks) if look.found.segments]
        if places:
            answers = await asyncio.gather(*(self._remaining(looks[place]) for place in places))
            for place, answer in zip(places, answers, strict=True):
                remote[place] = answer
        return remote

    async def _remaining(self, look: Look) -> int | StratalogError:
        error = self.refusal(look.found)
        if error is not None:
            return error
        try:
            # At least 1, because the segments hold the asked offset.
            return max(
                1, await self._segments.remaining_bytes(look.found.segments, look.span.offset)
            )
        except StratalogError as failure:
            return failure


def rows_within(rows: Sequence[Coordinates], share: int, end: Offset) -> list[Coordinates]:
    """The rows that begin inside the share and below `end`. The last one is cut when it has been
    read.

    They end where a row is missing: the reader then asks for that offset, and is told of the
    damage instead of being led across it.
    """
    chosen: list[Coordinates] = []
    for row in rows:
        if share <= 0 or row.base_offset >= end:
            break
        if chosen and row.base_offset != chosen[-1].last_offset + 1:
            break
        chosen.append(row)
        share -= row.byte_size
    return chosen


def _wish(look: Look, remote_bytes: int | StratalogError, max_bytes: int) -> Wish:
    if isinstance(remote_bytes, StratalogError):
        return Wish(0, 0)
    rows = rows_within(look.found.rows, look.span.max_bytes or 1, look.end)
    wanted = min(remote_bytes + sum(row.byte_size for row in rows), look.span.max_bytes)
    if remote_bytes:
        # A guess, so it must not ask for more than there is to give.
        first = max(1, min(remote_bytes, FIRST_BYTES, look.span.max_bytes, max_bytes))
    else:
        first = rows[0].byte_size if rows else 0
    return Wish(first, max(first, wanted))


def _plan(look: Look, remote_bytes: int | StratalogError, share: int) -> _Plan:
    span, found = look.span, look.found
    max_bytes = min(share, span.max_bytes)
    nothing = RowsWanted(offset=span.offset, max_bytes=0, rows=())
    if isinstance(remote_bytes, StratalogError):
        return _Plan(rows=nothing, error=remote_bytes)
    if not share or not found.segments:
        rows = rows_within(found.rows, share, look.end)
        wanted = RowsWanted(offset=span.offset, max_bytes=max_bytes, rows=rows)
        return _Plan(max_bytes=max_bytes, rows=wanted)
    segments = SegmentsWanted(offset=span.offset, max_bytes=max_bytes, segments=found.segments)
    rest = max_bytes - remote_bytes
    boundary = found.segments[-1].end_offset
    if rest > 0 and found.rows and found.rows[0].base_offset == boundary:
        rows = rows_within(found.rows, rest, look.end)
        nothing = RowsWanted(offset=boundary, max_bytes=rest, rows=rows)
    return _Plan(max_bytes=max_bytes, segments=segments, rows=nothing)


def _joined(look: Look, plan: _Plan, segments: SegmentsRead | None, rows: RowsRead) -> TiersRead:
    if segments is None:
        error = plan.error or (None if rows.parts else rows.error)
        return TiersRead(parts=_below(look, rows.parts), error=error)
    parts: list[Part] = [*segments.parts]
    next_offset = segments.next_offset
    if rows.parts and _follow(plan, segments, rows):
        parts += rows.parts
        next_offset = Offset(plan.rows.rows[-1].last_offset + 1)
    error = None if parts else segments.error
    return TiersRead(parts=_below(look, parts), error=error, next_offset=next_offset)


def _follow(plan: _Plan, segments: SegmentsRead, rows: RowsRead) -> bool:
    """Whether the rows come right after what was read of the segments, and there is room."""
    if not segments.ended or segments.next_offset != plan.rows.offset:
        return False
    return not segments.parts or segments.size_bytes + rows.size_bytes <= plan.max_bytes


def _below(look: Look, parts: Sequence[Part]) -> list[Part]:
    """The batches that the reader may see. Of most answers that is all of them, as it is."""
    state = look.found.state
    if state is None or look.end >= state.high_watermark:
        return list(parts)
    data = b"".join(parts)
    for position, header in iter_batches(data):
        if header.base_offset >= look.end:
            return [data[:position]] if position else []
    return [data] if data else []
