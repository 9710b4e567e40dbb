"""Segments that a driver finished, and did not live to chain.

Whoever builds such a segment again reads and writes up to a gigabyte for nothing. So a run chains
it before it plans, if nobody has a claim on its partition: a driver that is alive has one, and
chains its own. What has no place any more is left to the janitor.
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
"""At one look. There are none, but after a driver was killed."""


async def chain_finished(control: ControlPlane, unclaimed: Collection[TopicPartition]) -> int:
    """Chain what only its last step kept from its partition; return how many that were."""
    if not unclaimed:
        return 0
    found = await control.segments.unchained(older_than_ms=0, limit=_MOST)
    chained = 0
    # In the order of their offsets, because the first may make room for the second.
    for segment in sorted(found, key=_place):
        if segment.state is SegmentState.COPY_FINISHED and segment.topic_partition in unclaimed:
            with suppress(BoundaryMovedError, SegmentStateError):
                outcome = await control.segments.chain(segment.segment_id)
                chained += outcome is ChainOutcome.CHAINED
    if chained:
        log.info("%d segments that a driver had left behind are chained.", chained)
    return chained


def _place(segment: Segment) -> tuple[TopicPartition, Offset]:
    return segment.topic_partition, segment.base_offset
