from dataclasses import replace
from typing import Any, cast

from tests.contract.control.segment_building import UPLOADED, segment

from stratalog.control.segments.model import Segment, SegmentState
from stratalog.ids import Offset, PartitionIndex, ProducerId, TopicPartition, new_topic_id
from stratalog.segment.metadata import SegmentMetadata
from stratalog.segment.model import AbortedTransaction
from stratalog.segment.reader import SegmentReader
from stratalog.testing.clock import ManualClock
from stratalog.topic.aborted import AbortedTransactions

KEY = TopicPartition(new_topic_id(), PartitionIndex(0))


def aborted(producer: int, first: int) -> AbortedTransaction:
    return AbortedTransaction(ProducerId(producer), Offset(first), Offset(18), Offset(19))


class Overlapping:
    """Two segments that both hold the markers of two transactions."""

    async def chained(self, *_: Any, after: int, limit: int) -> list[Segment]:
        del limit
        found = [_segment(0, 19), _segment(10, 29)]
        return [one for one in found if one.last_offset > after]

    async def aborted(self, segments: list[Segment], *_: Any) -> list[AbortedTransaction]:
        return [one for _ in segments for one in (aborted(2, 12), aborted(1, 11), aborted(1, 5))]


def _segment(base: int, last: int, *, added_ms: int = 0, has_aborted: bool = True) -> Segment:
    added = segment(KEY, base, last)
    values = {name: getattr(added, name) for name in added.__dataclass_fields__}
    uploaded = type(UPLOADED)(manifest="{}", stored_bytes=1, has_aborted=has_aborted)
    return Segment(
        **values,
        state=SegmentState.COPY_FINISHED,
        chained=True,
        owned=False,
        added_ms=added_ms,
        changed_ms=0,
        uploaded=uploaded,
    )


def transactions_of(source: Overlapping, clock: ManualClock | None = None) -> AbortedTransactions:
    return AbortedTransactions(
        metadata=cast(SegmentMetadata, source),
        segments=cast(SegmentReader, source),
        clock=clock or ManualClock(),
    )


async def test_a_transaction_is_told_once_although_two_segments_note_it() -> None:
    found = await transactions_of(Overlapping()).between(
        _segment(0, 19), Offset(0), Offset(30), log_start=Offset(0), remote_end=Offset(30)
    )
    assert found == [aborted(1, 5), aborted(1, 11), aborted(2, 12)]


class AdoptedAnew(Overlapping):
    """A topic that ended in other segments when it was first adopted, and written to since."""

    def __init__(self) -> None:
        self.known = [_segment(0, 19, has_aborted=False), _segment(20, 39, has_aborted=False)]

    async def chained(self, *_: Any, after: int, limit: int) -> list[Segment]:
        del limit
        return [one for one in self.known if one.last_offset > after]


async def test_nothing_is_remembered_of_a_topic_that_was_deleted_and_adopted_anew() -> None:
    source = AdoptedAnew()
    transactions = transactions_of(source)

    async def found(segment: Segment) -> list[int]:
        noted = await transactions.between(
            segment,
            segment.base_offset,
            segment.end_offset,
            log_start=Offset(0),
            remote_end=Offset(40),
        )
        return [one.producer_id for one in noted]

    assert [await found(one) for one in source.known] == [[], []]
    source.known = [_segment(0, 19, added_ms=5), _segment(20, 39, added_ms=5)]
    assert [await found(one) for one in source.known] == [[1, 1, 2], [1, 1, 2]]


class Chain(Overlapping):
    """Consecutive segments with a note each, and which of them were asked for it last."""

    def __init__(self, count: int) -> None:
        self.known = [_segment(10 * place, 10 * place + 9) for place in range(count)]
        self.pages = 0
        self.asked: list[Segment] = []

    async def chained(self, *_: Any, after: int, limit: int) -> list[Segment]:
        self.pages += 1
        return [one for one in self.known if one.last_offset > after][:limit]

    async def aborted(self, segments: list[Segment], *_: Any) -> list[AbortedTransaction]:
        self.asked = segments
        return []

    async def read(self, transactions: AbortedTransactions, first: int, log_start: int = 0) -> None:
        end = Offset(len(self.known) * 10)
        holder = next(one for one in self.known if one.last_offset >= first)
        await transactions.between(
            holder, Offset(first), end, log_start=Offset(log_start), remote_end=end
        )


async def test_an_index_that_was_repaired_is_noticed_before_long() -> None:
    clock, source = ManualClock(), Chain(2)
    transactions = transactions_of(source, clock)
    await source.read(transactions, 0)
    repaired = type(UPLOADED)(manifest="{repaired}", stored_bytes=1, has_aborted=True)
    source.known[0] = replace(source.known[0], uploaded=repaired)
    await clock.advance(29)
    await source.read(transactions, 0)
    assert source.pages == 1
    await clock.advance(1)
    await source.read(transactions, 0)
    assert (source.pages, source.asked) == (2, source.known)


async def test_nothing_is_remembered_of_segments_that_were_deleted() -> None:
    source = Chain(5)
    transactions = transactions_of(source)
    await source.read(transactions, 0)
    await source.read(transactions, 35, log_start=35)
    assert source.asked == source.known[3:]
    [noted] = transactions._noted.values()
    assert noted.segments == source.known[3:]
    # A reader that looked before the deletion gets all that there was.
    await source.read(transactions, 0)
    assert source.asked == source.known
