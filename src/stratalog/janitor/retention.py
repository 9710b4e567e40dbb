"""Retention: removing what is too old or too much, topic by topic, in bounded transactions."""

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
    """How long and how much a topic keeps. None is for ever."""

    ms: int | None
    bytes: int | None

    @property
    def keeps_everything(self) -> bool:
        return self.ms is None and self.bytes is None


RetentionOf = Callable[[Topic], Retention]


async def enforce_retention(
    control: ControlPlane, retention_of: RetentionOf, *, chunk_rows: int
) -> int:
    """Remove the rows that no topic wants to keep; return how many."""
    removed = 0
    for topic in await control.topics.all():
        try:
            retention = retention_of(topic)
        except CallError as error:
            # A topic with a config that cannot be read keeps its data and holds nobody up.
            log.warning("Topic %s keeps everything until it is fixed: %s", topic.name, error)
            continue
        removed += await _enforce_topic(control, topic, retention, chunk_rows)
    return removed


async def _enforce_topic(
    control: ControlPlane, topic: Topic, retention: Retention, chunk_rows: int
) -> int:
    removed = 0
    try:
        for state in await control.log.topic_partitions(topic.id):
            if _may_hold_rows(state, retention):
                removed += await _enforce_partition(
                    control, state.topic_partition, retention, chunk_rows
                )
    except UnknownTopicError:
        # Deleted meanwhile, which removes its rows in another way.
        log.debug("Topic %s was deleted while its retention was enforced.", topic.name)
    return removed


def _may_hold_rows(state: PartitionState, retention: Retention) -> bool:
    """Whether there can be anything to remove.

    Also in a topic that keeps everything, and in an empty partition, a raised start may have left
    rows below it: deleting records moves the boundary first and removes in chunks.
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
