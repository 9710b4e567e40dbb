"""Fetching from partitions: one sequence of offsets, whatever holds the bytes.

The tier that serves an offset follows from the partition's boundaries alone, and the boundaries
come from the same snapshot as the pieces. A piece may be out of date when it is read: its object
may have been deleted after the look, or its indexes may have been repaired. So the offset is looked
up once more before the read fails.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from stratalog.clock import Clock
from stratalog.control.log.errors import OffsetOutOfRangeError
from stratalog.control.log.model import FoundBatches, PartitionState, Span
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.errors import StratalogError
from stratalog.ids import Offset, TopicPartition
from stratalog.pieces import PiecesRead
from stratalog.topic.aborted import AbortedTransactions
from stratalog.topic.errors import RowMissingError
from stratalog.topic.model import PartitionRead, ReadWork, UnboundedWork
from stratalog.topic.tiers import Look, Tiers
from stratalog.topic.watermarks import Watch, Watermarks

_MANY_PIECES = 2_000


class TopicReader:
    def __init__(
        self,
        *,
        control: ControlPlane,
        tiers: Tiers,
        aborted: AbortedTransactions,
        watermarks: Watermarks,
        clock: Clock,
        max_bytes: int,
    ) -> None:
        self._control = control
        self._tiers = tiers
        self._aborted = aborted
        self._watermarks = watermarks
        self._clock = clock
        self._max_bytes = max_bytes
        self._stopping = False

    def stop(self) -> None:
        """Let readers that wait for new data answer at once."""
        self._stopping = True
        self._watermarks.wake_all()

    async def read(
        self,
        spans: Sequence[Span],
        *,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        committed: bool = False,
        work: ReadWork | None = None,
    ) -> list[PartitionRead]:
        """Answer as soon as there are `min_bytes` or an error, or the wait is over.

        A reader of committed records sees nothing beyond the last stable offset, and gets the
        aborted transactions among the records that it sees.
        """
        with self._watermarks.watch(span.topic_partition for span in spans) as watch:
            answers = await self.read_watched(
                watch,
                lambda _: spans,
                max_bytes=max_bytes,
                min_bytes=min_bytes,
                max_wait_ms=max_wait_ms,
                committed=committed,
                work=work,
            )
        return [answer for _, answer in answers]

    def watch(self) -> Watch:
        """Return a watch on no partition yet, for `read_watched`. Close it."""
        return self._watermarks.watch(())

    async def read_watched(
        self,
        watch: Watch,
        wanted: Callable[[Iterable[TopicPartition]], Sequence[Span]],
        *,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        committed: bool = False,
        work: ReadWork | None = None,
    ) -> list[tuple[Span, PartitionRead]]:
        """Do the same for some of the partitions of a watch that outlives the read.

        `wanted` gets the partitions that have changed, and returns the spans of the next look. The
        last look is answered.
        """
        budget = min(max_bytes, self._max_bytes)
        work = work or UnboundedWork()
        now = self._clock.monotonic()
        deadline = now + max_wait_ms / 1000
        waits = max_wait_ms > 0 and min_bytes > 0
        while True:
            spans = wanted(watch.rest())
            over = self._stopping or now >= deadline
            ends = self._known_ends(spans) if waits else None
            if ends is None:
                looks = await self._look(spans, budget, committed=committed, trusting=waits)
                over = self._stopping or now >= deadline
                if over and all(map(_is_at_end, looks)):
                    return [(look.span, _partition_read(look, None)) for look in looks]
                if over or self._enough(looks, min_bytes):
                    async with work.away():
                        room = max(await work.room_for(min(budget, _answer_bytes(looks))), 1)
                        answers = await self._answer(spans, looks, room, committed=committed)
                    # A segment that ends in a gap holds nothing for a reader inside the gap.
                    if over or min_bytes <= 0 or any(one.parts or one.error for one in answers):
                        return list(zip(spans, answers, strict=True))
                # The memory of a look is not kept while there is nothing to read.
                del looks
            elif over:
                return list(zip(spans, map(_nothing_new, ends), strict=True))
            async with work.away():
                woken = await watch.grown(deadline - self._clock.monotonic())
            # The timer goes by the loop's clock, which may be a little ahead of this one.
            now = self._clock.monotonic() if woken else deadline

    def _known_ends(self, spans: Sequence[Span]) -> list[PartitionState] | None:
        """Return the known states of the partitions, if the reader is at the end of all of them."""
        ends = []
        for span in spans:
            state = self._watermarks.known(span.topic_partition)
            if state is None or state.high_watermark != span.offset:
                return None
            ends.append(state)
        return ends

    async def _answer(
        self, spans: Sequence[Span], looks: Sequence[Look], budget: int, *, committed: bool
    ) -> list[PartitionRead]:
        answers = await self._read_found(looks, budget, committed=committed)
        stale = [place for place, one in enumerate(answers) if self._tiers.is_stale(one.error)]
        if stale:
            left = _left(budget, answers)
            looks = await self._look([spans[place] for place in stale], left, committed=committed)
            again = await self._read_found(looks, left, committed=committed)
            for place, answer in zip(stale, again, strict=True):
                answers[place] = answer
        return answers

    async def _look(
        self, spans: Sequence[Span], budget: int, *, committed: bool, trusting: bool = False
    ) -> list[Look]:
        """Find the pieces of spans.

        A reader that waits anyway trusts the state that is known of a partition at whose end it is.
        The control plane is asked for the others.
        """
        looks = [self._rest(span, committed=committed) if trusting else None for span in spans]
        asked = [span for span, look in zip(spans, looks, strict=True) if look is None]
        found = iter(await self._find(asked, budget) if asked else ())
        return [
            look
            or Look(span=span, found=(one := next(found)), end=_end(one.state, committed=committed))
            for span, look in zip(spans, looks, strict=True)
        ]

    def _rest(self, span: Span, *, committed: bool) -> Look | None:
        """Return the look that finds nothing, if that much is known."""
        state = self._watermarks.known(span.topic_partition)
        end = _end(state, committed=committed)
        look = Look(span=span, found=FoundBatches(state=state, pieces=()), end=end)
        return look if _is_at_end(look) else None

    async def _find(self, spans: Sequence[Span], budget: int) -> list[FoundBatches]:
        found = await self._control.log.find_batches(spans, max_bytes=budget)
        for one in found:
            if one.state is not None:
                self._watermarks.seen(one.state)
        return found

    def _enough(self, looks: Sequence[Look], min_bytes: int) -> bool:
        """Tell whether an answer now would be worth sending: enough bytes, or an error.

        A reader does not wait where a tier holds pieces that the partition is no longer written
        to: they are complete. Nor does it wait for more bytes of many thin pieces, because one
        look finds a bounded number of them. Tiers that this broker does not read count for
        nothing, so that clients which ask again at once do not spin.
        """
        if any(_problem(look) is not None for look in looks):
            return True
        size_bytes, piece_count = 0, 0
        for look in looks:
            pieces, state = look.found.pieces, look.found.state
            if not pieces or self._tiers.refusal(pieces[0].tier) is not None:
                continue
            if state is not None and pieces[0].tier.value != state.write_tier.value:
                return True
            size_bytes += sum(one.size_bytes for one in pieces if one.base_offset < look.end)
            piece_count += len(pieces)
        return size_bytes >= min_bytes or piece_count >= _MANY_PIECES

    async def _read_found(
        self, looks: Sequence[Look], budget: int, *, committed: bool
    ) -> list[PartitionRead]:
        reads = await self._tiers.read(looks, budget)
        answers = [_partition_read(*pair) for pair in zip(looks, reads, strict=True)]
        if committed:
            await asyncio.gather(
                *(
                    self._add_aborted(look, read.next_offset, answers, place)
                    for place, (look, read) in enumerate(zip(looks, reads, strict=True))
                    if look.found.segments and answers[place].parts
                )
            )
        await self._read_past_gaps(looks, reads, answers, budget, committed=committed)
        return answers

    async def _read_past_gaps(
        self,
        looks: Sequence[Look],
        reads: Sequence[PiecesRead],
        answers: list[PartitionRead],
        budget: int,
        *,
        committed: bool,
    ) -> None:
        """Read on behind a gap.

        A segment of Kafka may end in a gap, and then holds nothing for a reader inside the gap.
        With an empty answer, the reader would ask for the same offset again and again.
        """
        ends = {
            place: read.next_offset
            for place, (look, read) in enumerate(zip(looks, reads, strict=True))
            if look.span.offset < read.next_offset < look.end
            and not (answers[place].parts or answers[place].error)
        }
        if ends:
            beyond = [replace(looks[place].span, offset=end) for place, end in ends.items()]
            left = _left(budget, answers)
            found = await self._look(beyond, left, committed=committed)
            again = await self._read_found(found, left, committed=committed)
            for place, answer in zip(ends, again, strict=True):
                answers[place] = answer

    async def _add_aborted(
        self, look: Look, end: Offset, answers: list[PartitionRead], place: int
    ) -> None:
        state = look.found.state
        assert state is not None
        try:
            aborted = await self._aborted.between(
                look.found.segments[0],
                look.span.offset,
                end,
                log_start=state.log_start,
                remote_end=state.remote_end,
            )
        except StratalogError as error:
            # Without the transactions, the reader would take aborted records for committed ones.
            answers[place] = _failed(state, error)
        else:
            answers[place] = replace(answers[place], aborted=aborted)


def _answer_bytes(looks: Sequence[Look]) -> int:
    """Return the most bytes that an answer may have."""
    return sum(
        min(sum(piece.size_bytes for piece in look.found.pieces), look.span.max_bytes)
        for look in looks
    )


def _left(budget: int, answers: Sequence[PartitionRead]) -> int:
    """Return the rest of the budget, at least 1, so that one reader moves on."""
    return max(1, budget - sum(len(part) for answer in answers for part in answer.parts))


def _end(state: PartitionState | None, *, committed: bool) -> Offset:
    if state is None:
        return Offset(0)
    return state.last_stable if committed else state.high_watermark


def _is_at_end(look: Look) -> bool:
    state = look.found.state
    return state is not None and look.span.offset == state.high_watermark


def _problem(look: Look) -> StratalogError | None:
    span, found, state = look.span, look.found, look.found.state
    if state is None:
        return UnknownTopicError("the topic or partition does not exist")
    if not state.log_start <= span.offset <= state.high_watermark:
        return OffsetOutOfRangeError(
            f"offset {span.offset} is outside [{state.log_start}, {state.high_watermark}]"
        )
    if span.offset == state.high_watermark:
        return None
    first = found.pieces[0] if found.pieces else None
    if first is None or not first.base_offset <= span.offset <= first.last_offset:
        return RowMissingError(
            f"no row or segment holds offset {span.offset} of partition {span.partition} of topic "
            f"{span.topic_id}; run `stratalog fsck`"
        )
    return None


def _partition_read(look: Look, read: PiecesRead | None) -> PartitionRead:
    """Make the answer of a read. None: there was nothing to read."""
    error = _problem(look) or (read.error if read else None)
    state = look.found.state
    if state is None:
        return PartitionRead(error=error)
    if error is not None:
        return _failed(state, error)
    return replace(_nothing_new(state), parts=read.parts) if read else _nothing_new(state)


def _nothing_new(state: PartitionState) -> PartitionRead:
    return PartitionRead(
        high_watermark=state.high_watermark,
        last_stable=state.last_stable,
        log_start=state.log_start,
    )


def _failed(state: PartitionState, error: StratalogError) -> PartitionRead:
    return PartitionRead(
        error=error,
        high_watermark=state.high_watermark,
        last_stable=state.last_stable,
        log_start=state.log_start,
    )
