"""The control plane's knowledge that a recovery starts from, read before anything is planned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from stratalog.control.log.model import Coordinates, PartitionState
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.ids import Offset, TopicId, TopicPartition, WriterTag, uuid7_time_ms, writer_tag_of
from stratalog.recovery.survey import Known

_PAGE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    known: Known
    topics: Mapping[TopicId, Topic]
    deleted: set[UUID]
    """Topics that were deleted, and whose rows are still there."""
    states: Mapping[TopicPartition, PartitionState]
    rows: Mapping[TopicPartition, Sequence[Coordinates]]
    """From `block_start` on."""
    newest_ms: Mapping[WriterTag, int]
    """The time in the newest known id of each writer. A writer commits in the order of its ids, so
    an older object without a row was never committed."""


async def read_ground(control: ControlPlane) -> Ground:
    known = Known(
        objects=await control.recoveries.known_objects(),
        segments=await control.recoveries.known_segments(),
    )
    topics = {topic.id: topic for topic in await control.topics.all()}
    states: dict[TopicPartition, PartitionState] = {}
    rows: dict[TopicPartition, Sequence[Coordinates]] = {}
    for topic_id in topics:
        for state in await control.log.topic_partitions(topic_id):
            states[state.topic_partition] = state
            rows[state.topic_partition] = await _rows(control, state)
    newest: dict[WriterTag, int] = {}
    for object_id in known.objects:
        tag = writer_tag_of(object_id)
        newest[tag] = max(newest.get(tag, 0), uuid7_time_ms(object_id))
    return Ground(
        known=known,
        topics=topics,
        deleted=await control.recoveries.deleted_topics(),
        states=states,
        rows=rows,
        newest_ms=newest,
    )


async def _rows(control: ControlPlane, state: PartitionState) -> list[Coordinates]:
    rows: list[Coordinates] = []
    after = Offset(state.block_start - 1)
    while page := await control.log.all_coordinates(
        state.topic_partition, after=after, limit=_PAGE
    ):
        rows += page
        after = page[-1].last_offset
    return rows
