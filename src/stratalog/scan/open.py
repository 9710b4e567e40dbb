"""From settings to a scanner. Needs the control plane and the object store, and no broker."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from stratalog.block.batch_index import BatchIndex
from stratalog.block.cache import FreshBlocks
from stratalog.block.reader import BlockReader
from stratalog.checks.segment_place import check_place
from stratalog.clock import Clock, SystemClock
from stratalog.control.open import open_existing
from stratalog.control.plane import ControlPlane
from stratalog.metrics import Metrics
from stratalog.objects.open import open_store
from stratalog.scan.place import key_ring, place_of
from stratalog.scan.planner import Scanner
from stratalog.scan.times import RecordTimes, TimeSearch
from stratalog.segment.reader import SegmentReader
from stratalog.segment.stores import SegmentStores, open_other_store
from stratalog.settings import Settings


@asynccontextmanager
async def opened_scanner(
    settings: Settings,
    *,
    clock: Clock | None = None,
    control: ControlPlane | None = None,
    metrics: Metrics | None = None,
) -> AsyncIterator[Scanner]:
    """A scanner, ready to plan. A control plane that is given is used instead of opened; metrics
    count what planning reads of `storage.objects`."""
    clock = clock or SystemClock()
    storage, remote = settings.storage, settings.remote
    keys = key_ring(place_of(settings).private_keys_pem)
    async with AsyncExitStack() as closing:
        if control is None:
            control = await open_existing(storage.control)
            closing.push_async_callback(control.close)
        store = open_store(storage.objects, storage.object_options, clock=clock, metrics=metrics)
        closing.push_async_callback(store.close)
        own = store
        if remote.objects is not None:
            own = open_other_store(remote.objects, storage, clock)
            closing.push_async_callback(own.close)
        await check_place(control, store, own)
        stores = SegmentStores(own, lambda url: open_other_store(url, storage, clock))
        closing.push_async_callback(stores.close)
        reader = SegmentReader(stores=stores, keys=keys, settings=remote)
        closing.push_async_callback(reader.close)
        blocks = BlockReader(store=store, cache=FreshBlocks(0))
        index = BatchIndex(control=control, store=store)
        times = RecordTimes(blocks=blocks, index=index, segments=reader)
        yield Scanner(
            control=control,
            reader=reader,
            index=index,
            times=TimeSearch(control=control, times=times),
            settings=settings.scan,
        )
