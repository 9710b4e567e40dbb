"""Aborted transactions, for readers of committed records in the remote tier.

An aborted transaction is noted in the transaction index of the segment that holds its marker, and
the marker may come long after the records. So the segments behind the answer are searched, too.
Most segments have no such notes, and the search remembers which ones do: a chain only grows at its
end, so that each read looks at the segments that were added since the last one. A repaired index
may differ from the one that was read, so that nothing is remembered for long.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from stratalog.clock import Clock
from stratalog.control.segments.model import Segment
from stratalog.errors import DamagedError
from stratalog.ids import Offset, TopicPartition, kafka_base64
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.segment.metadata import SegmentMetadata
from stratalog.segment.model import AbortedTransaction
from stratalog.segment.reader import SegmentReader

_SEGMENTS_AT_ONCE = 500
_MAX_PARTITIONS = 2000
_REMEMBERED_S = 30.0
"""One page of rows in so many seconds costs little, and a repair takes effect soon enough."""


@dataclass(slots=True)
class _Noted:
    """The segments from `start` to `end` that have notes, in offset order."""

    start: Offset
    end: Offset
    until_s: float
    newest_ms: int = 0
    """The time at which the youngest segment of the range was added."""
    segments: list[Segment] = field(default_factory=list)


class AbortedTransactions:
    def __init__(self, *, metadata: SegmentMetadata, segments: SegmentReader, clock: Clock) -> None:
        self._metadata = metadata
        self._segments = segments
        self._clock = clock
        self._noted: OrderedDict[TopicPartition, _Noted] = OrderedDict()

    async def between(
        self,
        holder: Segment,
        first: Offset,
        end: Offset,
        *,
        log_start: Offset,
        remote_end: Offset,
    ) -> Sequence[AbortedTransaction]:
        """Find the aborted transactions with records from `first` to below `end`, by first offset.

        `holder` is the segment that holds `first`.
        """
        partition = holder.topic_partition
        noted = self._noted.get(partition)
        if noted is not None and (self._is_old(noted) or _is_another(noted, holder)):
            del self._noted[partition]
        elif noted is not None:
            _drop_deleted(noted, log_start)
        try:
            return await self._search(partition, first, end, remote_end)
        except (ObjectNotFoundError, DamagedError):
            # A remembered segment may have been replaced by one with the same records, or its
            # indexes may have been rebuilt.
            self._noted.pop(partition, None)
            return await self._search(partition, first, end, remote_end)

    async def _search(
        self, partition: TopicPartition, first: Offset, end: Offset, remote_end: Offset
    ) -> list[AbortedTransaction]:
        noted = await self._with_notes(partition, first, remote_end)
        behind = [segment for segment in noted if segment.last_offset >= first]
        found = await self._segments.aborted(behind, first, end) if behind else []
        # Adopted segments may overlap, and a client takes a second mention for another transaction.
        once = {(one.producer_id, one.first_offset): one for one in found}
        return sorted(once.values(), key=lambda one: one.first_offset)

    async def _with_notes(
        self, partition: TopicPartition, first: Offset, remote_end: Offset
    ) -> Sequence[Segment]:
        noted = self._noted.get(partition)
        if noted is None or first < noted.start:
            until_s = self._clock.monotonic() + _REMEMBERED_S
            noted = self._remember(partition, _Noted(first, first, until_s))
        self._noted.move_to_end(partition)
        while noted.end < remote_end:
            page = await self._metadata.chained(
                partition, after=Offset(noted.end - 1), limit=_SEGMENTS_AT_ONCE
            )
            if not page or page[0].base_offset > noted.end:
                # The markers were deleted with the segments, and without markers aborted records
                # would pass for committed ones. The next look finds that the records are gone, too.
                raise ObjectNotFoundError(
                    f"segments from offset {noted.end} of partition {partition.partition} of topic"
                    f" {kafka_base64(partition.topic_id)} were deleted after they were read"
                )
            fresh = [segment for segment in page if segment.last_offset >= noted.end]
            noted.segments += [one for one in fresh if one.uploaded and one.uploaded.has_aborted]
            noted.end = max(noted.end, page[-1].end_offset)
            noted.newest_ms = max(noted.newest_ms, *(segment.added_ms for segment in page))
        return noted.segments

    def _is_old(self, noted: _Noted) -> bool:
        return self._clock.monotonic() >= noted.until_s

    def _remember(self, partition: TopicPartition, noted: _Noted) -> _Noted:
        self._noted[partition] = noted
        while len(self._noted) > _MAX_PARTITIONS:
            self._noted.popitem(last=False)
        return noted


def _is_another(noted: _Noted, holder: Segment) -> bool:
    """Tell whether the segment came after the search: the topic was deleted and adopted again."""
    return holder.end_offset <= noted.end and holder.added_ms > noted.newest_ms


def _drop_deleted(noted: _Noted, log_start: Offset) -> None:
    kept = next(
        (place for place, one in enumerate(noted.segments) if one.last_offset >= log_start),
        len(noted.segments),
    )
    del noted.segments[:kept]
    # A read from an offset below would miss the segments that were dropped.
    noted.start = max(noted.start, min(log_start, noted.end))
