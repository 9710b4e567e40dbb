"""Segments that a driver finished, and did not live to chain.

To build such a segment again means to read and write up to a gigabyte for nothing. So a run chains
it before planning, if its partition is not claimed: a driver that is alive has a claim, and chains
its own segments. A segment that does not fit any more is left to the janitor.
"""

import logging
from collections.abc import Collection
from contextlib import suppress

from stratalog.control.plane import ControlPlane
from stratalog.control.segments.errors import BoundaryMovedError, SegmentStateError
from stratalog.control.segments.model import ChainOutcome, Segment, SegmentState
from stratalog.ids import Offset, TopicPartition

log = logging.getLogger(__name__)

_MOST = 1000
"""Segments in one query. There are none, except after a driver was killed."""


async def chain_finished(control: ControlPlane, unclaimed: Collection[TopicPartition]) -> int:
    """Chain the segments that miss only this last step, and return their number."""
    if not unclaimed:
        return 0
    found = await control.segments.unchained(older_than_ms=0, limit=_MOST)
    chained = 0
    # In the order of their offsets, because the first may make room for the second.
    for segment in sorted(found, key=_first_offset):
        if segment.state is SegmentState.COPY_FINISHED and segment.topic_partition in unclaimed:
            with suppress(BoundaryMovedError, SegmentStateError):
                outcome = await control.segments.chain(segment.segment_id)
                chained += outcome is ChainOutcome.CHAINED
    if chained:
        log.info("%d segments that a driver had left behind are chained.", chained)
    return chained


def _first_offset(segment: Segment) -> tuple[TopicPartition, Offset]:
    return segment.topic_partition, segment.base_offset
