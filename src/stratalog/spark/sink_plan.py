"""The plan of a sink, made beside the driver before the first task: its topics and its lease."""

from collections.abc import Mapping

from stratalog.clock import Clock
from stratalog.control.log.model import WriteTier
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.control.writers.model import WriterKind
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.opening.cluster import Rights, opened_cluster
from stratalog.settings import Settings
from stratalog.spark.errors import SinkError, SinkTopicError
from stratalog.spark.sink_model import SinkPlan, SinkTopic
from stratalog.spark.sink_options import SinkOptions
from stratalog.topic.configs import effective

LEASE_HOLDER = "sink"


async def plan_sink(
    control: ControlPlane,
    settings: Settings,
    options: SinkOptions,
    *,
    clock: Clock,
    lease_ms: int | None,
) -> SinkPlan:
    """Plan a write. The lease is taken last, so that a write that is refused leaves none behind.

    Raises if the store is not this cluster's: its readers would never find the blocks.
    """
    tag = control.writers.new_tag()
    async with opened_cluster(settings, Rights.APPEND, clock=clock, control=control) as cluster:
        access = await cluster.for_workers(writer=tag)
    topics = await _topics(control, settings, options.topic)
    await control.writers.announce(tag, WriterKind.SINK)
    lease = None
    if lease_ms is not None:
        lease = await control.scans.take_lease(LEASE_HOLDER, duration_ms=lease_ms)
    return SinkPlan(
        access=access,
        topics=topics,
        topic=options.topic,
        codec=options.codec,
        lease_id=lease.lease_id if lease is not None else None,
    )


async def _topics(
    control: ControlPlane, settings: Settings, name: str | None
) -> Mapping[str, SinkTopic]:
    if name is None:
        return {topic.name: _sink_topic(topic, settings) for topic in await control.topics.all()}
    found = await control.topics.named([name])
    if not found:
        raise SinkTopicError(f"there is no topic {name!r} in {control.url}: create it first")
    await _check_tier(control, found[0])
    return {name: _sink_topic(found[0], settings)}


async def _check_tier(control: ControlPlane, topic: Topic) -> None:
    keys = [
        TopicPartition(topic.id, PartitionIndex(number)) for number in range(topic.partition_count)
    ]
    for state in (await control.log.partitions(keys)).values():
        if state.write_tier is not WriteTier.BLOCK:
            raise SinkError(
                f"topic {topic.name!r} is read-only until it is migrated; run"
                f" `stratalog topic migrate {topic.name}`"
            )


def _sink_topic(topic: Topic, settings: Settings) -> SinkTopic:
    return SinkTopic(
        id=topic.id,
        name=topic.name,
        partition_count=topic.partition_count,
        config=effective(settings.topic, topic.configs),
    )
