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


def _segment(base: int, last: int) -> Segment:
    added = segment(KEY, base, last)
    values = {name: getattr(added, name) for name in added.__dataclass_fields__}
    uploaded = type(UPLOADED)(manifest="{}", stored_bytes=1, has_aborted=True)
    return Segment(
        **values,
        state=SegmentState.COPY_FINISHED,
        chained=True,
        owned=False,
        added_ms=0,
        changed_ms=0,
        uploaded=uploaded,
    )


async def test_a_transaction_is_told_once_although_two_segments_note_it() -> None:
    both = Overlapping()
    transactions = AbortedTransactions(
        control=cast(ControlPlane, both), segments=cast(SegmentReader, both)
    )
    found = await transactions.between(KEY, Offset(0), Offset(30), remote_end=Offset(30))
    assert found == [aborted(1, 5), aborted(1, 11), aborted(2, 12)]
