"""The writing side of a node: one appender for each tier that takes writes."""

import asyncio
from collections.abc import Callable

from stratalog.batch.validate import load_walk
from stratalog.block.announced_writer import AnnouncedWriter
from stratalog.block.count_watch import CountWatch
from stratalog.block.fresh_blocks import FreshBlocks
from stratalog.block.witness import CommitWitness
from stratalog.block.writer import Advanced, BlockWriter, OnCommit
from stratalog.cluster.membership import RENEWALS_PER_LEASE
from stratalog.control.log.model import WriteTier
from stratalog.control.plane import ControlPlane
from stratalog.control.writers.model import WriterKind
from stratalog.ids import BrokerId
from stratalog.node.ground import Ground
from stratalog.node.parts import Part, Parts
from stratalog.node.patience import patiently
from stratalog.node.phases import Phase
from stratalog.opening.cluster import OpenCluster
from stratalog.opening.writers import end_writer
from stratalog.topic.append import TopicAppender
from stratalog.topic.catalog import TopicCatalog
from stratalog.topic.entry_checks import EntryLimits


async def start_writing(
    parts: Parts,
    ground: Ground,
    cluster: OpenCluster,
    *,
    catalog: TopicCatalog,
    fresh_blocks: FreshBlocks,
    broker_id: Callable[[], BrokerId],
    on_commit: OnCommit,
) -> TopicAppender:
    """`broker_id` is a function because a broker that lost its lease may get another id."""
    await asyncio.to_thread(load_walk)
    announced = await _announce(parts, ground, cluster.control, broker_id())
    witness = await _witness(parts, ground, cluster, announced)

    def committed(advanced: Advanced) -> None:
        if witness is not None:
            witness.committed()
        on_commit(advanced)

    blocks = BlockWriter(
        store=cluster.objects,
        control=cluster.control,
        cache=fresh_blocks,
        broker_id=broker_id,
        settings=ground.settings.block,
        clock=ground.clock,
        entropy=ground.entropy,
        metrics=ground.metrics,
        on_commit=committed,
        announced=announced,
        on_refused=ground.fence.close,
    )
    ground.fence.guard(blocks.fence)
    await parts.start(
        Part(name="the writer of blocks", stops_in=Phase.CLOSE_WRITERS, stop=blocks.close)
    )
    await _watch_count(parts, ground, cluster.control, announced, blocks)
    return TopicAppender(
        appenders={WriteTier.BLOCK: blocks},
        catalog=catalog,
        clock=ground.clock,
        topic_defaults=ground.settings.topic,
        entry_limits=EntryLimits(
            max_decompressed_bytes=ground.settings.broker.max_decompressed_bytes,
            max_ratio=ground.settings.broker.max_decompression_ratio,
        ),
    )


async def _watch_count(
    parts: Parts,
    ground: Ground,
    control: ControlPlane,
    announced: AnnouncedWriter,
    blocks: BlockWriter,
) -> None:
    watch = CountWatch(
        control,
        announced,
        interval_s=ground.settings.broker.lease_ms / RENEWALS_PER_LEASE / 1000,
        clock=ground.clock,
        on_refused=blocks.refused_by,
    )
    await parts.start(
        Part(
            name="the watch on the count of commits",
            stops_in=Phase.CLOSE_WRITERS,
            start=watch.start,
            stop=watch.stop,
        )
    )


async def _witness(
    parts: Parts, ground: Ground, cluster: OpenCluster, announced: AnnouncedWriter
) -> CommitWitness | None:
    interval_ms = ground.settings.block.witness_ms
    if not interval_ms:
        return None
    witness = CommitWitness(announced, cluster.objects, interval_ms=interval_ms, clock=ground.clock)
    await parts.start(
        Part(
            name="the witness of commits",
            stops_in=Phase.CLOSE_WRITERS,
            start=witness.start,
            stop=witness.stop,
        )
    )
    return witness


async def _announce(
    parts: Parts, ground: Ground, control: ControlPlane, broker_id: BrokerId
) -> AnnouncedWriter:
    """Announce the writer before its first upload. It ends after its last commit."""
    announced = AnnouncedWriter(control.writers.new_tag())
    await patiently(
        "The control plane",
        lambda: control.writers.announce(announced.tag, WriterKind.BROKER, broker_id),
        ground.clock,
    )

    await parts.start(
        Part(
            name="the announcement",
            stops_in=Phase.CLOSE_WRITERS,
            stop=lambda: end_writer(control, announced.tag),
        )
    )
    return announced
