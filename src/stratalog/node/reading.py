"""The reading side of a node: topics as clients fetch them, over all tiers."""

import asyncio
from dataclasses import dataclass

from stratalog.batch.log_place import load_log_walk
from stratalog.block.batch_index import BatchIndex
from stratalog.block.fresh_blocks import FreshBlocks
from stratalog.block.reader import BlockReader
from stratalog.node.ground import Ground
from stratalog.node.parts import Part, Parts
from stratalog.node.phases import Phase
from stratalog.opening.cluster import OpenCluster
from stratalog.topic.aborted import AbortedTransactions
from stratalog.topic.offsets import TopicOffsets
from stratalog.topic.open_tiers import open_tiers
from stratalog.topic.read import TopicReader
from stratalog.topic.times import RecordTimes
from stratalog.topic.watermarks import Watermarks


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    reader: TopicReader
    offsets: TopicOffsets
    watermarks: Watermarks
    fresh_blocks: FreshBlocks
    """The cache that the block writer fills."""


async def start_reading(parts: Parts, ground: Ground, cluster: OpenCluster) -> Reading:
    settings, clock, control = ground.settings, ground.clock, cluster.control
    await asyncio.to_thread(load_log_walk)
    watermarks = Watermarks(control=control, clock=clock, poll_ms=settings.fetch.poll_ms)
    await parts.start(
        Part(name="the watch on watermarks", stops_in=Phase.RELEASE, stop=watermarks.close)
    )
    segments = cluster.segment_reader(ground.metrics)
    await parts.start(
        Part(name="the reader of segments", stops_in=Phase.RELEASE, stop=segments.close)
    )
    fresh_blocks = FreshBlocks(settings.block.cache_bytes)
    blocks = BlockReader(store=cluster.objects, cache=fresh_blocks)
    reads_remote = settings.remote.reads
    reader = TopicReader(
        control=control,
        tiers=open_tiers(blocks=blocks, segments=segments, remote_reads=reads_remote),
        aborted=AbortedTransactions(metadata=control.segments, segments=segments, clock=clock),
        watermarks=watermarks,
        clock=clock,
        max_bytes=settings.fetch.max_bytes,
    )
    times = RecordTimes(
        blocks=blocks,
        index=BatchIndex(control=control, store=cluster.objects),
        segments=segments,
        remote_reads=reads_remote,
    )
    return Reading(
        reader=reader,
        offsets=TopicOffsets(control=control, times=times),
        watermarks=watermarks,
        fresh_blocks=fresh_blocks,
    )
