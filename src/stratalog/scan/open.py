"""Opening of a scanner from settings. It needs control plane and object store, no broker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stratalog.block.batch_index import BatchIndex
from stratalog.block.fresh_blocks import FreshBlocks
from stratalog.block.reader import BlockReader
from stratalog.clock import Clock
from stratalog.control.plane import ControlPlane
from stratalog.metrics import Metrics
from stratalog.opening.cluster import OpenCluster, Rights, opened_cluster
from stratalog.scan.planner import Scanner
from stratalog.scan.times import RecordTimes, TimeSearch
from stratalog.segment.reader import SegmentReader
from stratalog.settings import Settings


@asynccontextmanager
async def opened_scanner(
    settings: Settings,
    *,
    clock: Clock | None = None,
    control: ControlPlane | None = None,
    metrics: Metrics | None = None,
) -> AsyncIterator[Scanner]:
    """Open a scanner, ready to plan. A given control plane is used; otherwise one is opened.

    Metrics count the requests that planning makes to `storage.objects`.
    """
    opening = opened_cluster(settings, Rights.READ, clock=clock, control=control, metrics=metrics)
    async with opening as cluster:
        reader = cluster.segment_reader()
        try:
            yield _scanner(cluster, reader)
        finally:
            await reader.close()


def _scanner(cluster: OpenCluster, reader: SegmentReader) -> Scanner:
    control = cluster.control
    blocks = BlockReader(store=cluster.objects, cache=FreshBlocks(0))
    index = BatchIndex(control=control, store=cluster.objects)
    times = RecordTimes(blocks=blocks, index=index, segments=reader)
    return Scanner(
        control=control,
        reader=reader,
        index=index,
        times=TimeSearch(control=control, times=times),
        settings=cluster.settings.scan,
    )
