from typing import Any, cast

from tests.contract.control.segment_building import UPLOADED, segment

from stratalog.control.plane import ControlPlane
from stratalog.control.segment_model import Segment, SegmentState
from stratalog.ids import Offset, PartitionIndex, ProducerId, TopicPartition, new_topic_id
from stratalog.segment.model import AbortedTransaction
from stratalog.segment.reader import SegmentReader
from stratalog.topic.aborted import AbortedTransactions

KEY = TopicPartition(new_topic_id(), PartitionIndex(0))


def aborted(producer: int, first: int) -> AbortedTransaction:
    return AbortedTransaction(ProducerId(producer), Offset(first), Offset(18), Offset(19))


class Overlapping:
    """Two segments that both hold the markers of two transactions."""

    async def segments(self, *_: Any, after: int, limit: int) -> list[Segment]:
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


async def test_a_transaction_is_told_once_although_two_segments_note_it() -> None:
    both = Overlapping()
    transactions = AbortedTransactions(
        control=cast(ControlPlane, both), segments=cast(SegmentReader, both)
    )
    found = await transactions.between(
        _segment(0, 19), Offset(0), Offset(30), remote_end=Offset(30)
    )
    assert found == [aborted(1, 5), aborted(1, 11), aborted(2, 12)]


class AdoptedAnew(Overlapping):
    """A topic that ended in other segments when it was first adopted, and written to since."""

    def __init__(self) -> None:
        self.known = [_segment(0, 19, has_aborted=False), _segment(20, 39, has_aborted=False)]

    async def segments(self, *_: Any, after: int, limit: int) -> list[Segment]:
        del limit
        return [one for one in self.known if one.last_offset > after]


async def test_nothing_is_remembered_of_a_topic_that_was_deleted_and_adopted_anew() -> None:
    source = AdoptedAnew()
    transactions = AbortedTransactions(
        control=cast(ControlPlane, source), segments=cast(SegmentReader, source)
    )

    async def found(segment: Segment) -> list[int]:
        noted = await transactions.between(
            segment, segment.base_offset, segment.end_offset, remote_end=Offset(40)
        )
        return [one.producer_id for one in noted]

    assert [await found(one) for one in source.known] == [[], []]
    source.known = [_segment(0, 19, added_ms=5), _segment(20, 39, added_ms=5)]
    assert [await found(one) for one in source.known] == [[1, 1, 2], [1, 1, 2]]
