"""Retention: removes the oldest records of topics, by age or size, in bounded transactions."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from stratalog.control.log.model import PartitionState
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.errors import CallError
from stratalog.ids import TopicPartition

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The age and the size that a topic keeps. None means no limit."""

    ms: int | None
    bytes: int | None

    @property
    def keeps_everything(self) -> bool:
        return self.ms is None and self.bytes is None


RetentionOf = Callable[[Topic], Retention]


async def enforce_retention(
    control: ControlPlane, retention_of: RetentionOf, *, chunk_rows: int
) -> int:
    """Remove the rows beyond the retention of their topics; return how many.

    A partition whose boundaries are broken keeps its rows and does not delay other partitions. The
    first breach is raised at the end.
    """
    removed = 0
    breaches: list[AssertionError] = []
    for topic in await control.topics.all():
        try:
            retention = retention_of(topic)
        except CallError as error:
            # A topic whose config cannot be read keeps its data, and does not delay other topics.
            log.warning("Topic %s keeps everything until it is fixed: %s", topic.name, error)
            continue
        removed += await _enforce_topic(control, topic, retention, chunk_rows, breaches)
    if breaches:
        raise breaches[0]
    return removed


async def _enforce_topic(
    control: ControlPlane,
    topic: Topic,
    retention: Retention,
    chunk_rows: int,
    breaches: list[AssertionError],
) -> int:
    removed = 0
    try:
        for state in await control.log.topic_partitions(topic.id):
            if not _may_hold_rows(state, retention):
                continue
            try:
                removed += await _enforce_partition(
                    control, state.topic_partition, retention, chunk_rows
                )
            except AssertionError as breach:
                log.error("Topic %s: %s", topic.name, breach)
                breaches.append(breach)
    except UnknownTopicError:
        # The topic was deleted meanwhile, and the purge of topics removes its rows.
        log.debug("Topic %s was deleted while its retention was enforced.", topic.name)
    if removed:
        log.info("Retention removed %d rows and segments of topic %s.", removed, topic.name)
    return removed


def _may_hold_rows(state: PartitionState, retention: Retention) -> bool:
    """Return whether the partition may have rows to remove.

    DeleteRecords moves the boundary first and removes the rows below it in chunks. So there may be
    rows even in a topic that keeps everything, and in a partition without records.
    """
    if retention.keeps_everything:
        return state.block_start > 0
    return state.high_watermark > 0


async def _enforce_partition(
    control: ControlPlane, partition: TopicPartition, retention: Retention, chunk_rows: int
) -> int:
    removed = 0
    while True:
        chunk = await control.log.enforce_retention(
            partition,
            retention_ms=retention.ms,
            retention_bytes=retention.bytes,
            max_rows=chunk_rows,
        )
        removed += chunk
        if chunk < chunk_rows:
            return removed
