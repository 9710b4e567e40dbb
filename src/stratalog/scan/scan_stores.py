"""The stores, keys and indexes that a process reads splits with, opened once and kept."""

import asyncio
import os
import threading
from typing import TypeAlias

from stratalog.clock import SYSTEM_CLOCK
from stratalog.metrics import Metrics
from stratalog.objects.store import ObjectStore
from stratalog.opening.workers import WorkerAccess
from stratalog.scan.loop_thread import LoopThread, shared_loop_thread
from stratalog.segment.index_bytes import IndexBytes
from stratalog.segment.open_segment import PLAIN_CHUNK_BYTES
from stratalog.segment.open_segment_cache import OpenSegmentCache
from stratalog.segment.read_metrics import ReadMetrics

FETCH_BYTES = 8 * 1024 * 1024
"""A request is for so many bytes, or up to twice as many. That is large enough to cost little per
byte, and small enough for several requests to be in progress."""
MAPPED_FETCH_BYTES = 64 * 1024 * 1024
"""The same for files, which are mapped and not copied. Usually that is a whole extent, so that no
batch is torn."""
REQUESTS_AT_ONCE = 16
"""The requests of all splits of a process together. One connection to S3 carries some 50 to
100 MB/s."""
_OPEN_BYTES = 8 * 1024 * 1024
_INDEX_BYTES = 64 * 1024 * 1024
"""An index of a segment of 1 GiB has 2 MB, and every split of the segment needs it."""

_Key: TypeAlias = tuple[str, str, tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]


class ScanStores:
    """Everything here belongs to the event loop of `background`, which created it."""

    def __init__(
        self, access: WorkerAccess, background: LoopThread, *, metrics: Metrics | None = None
    ) -> None:
        self.background = background
        self.requests = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self._stores = access.open_stores(clock=SYSTEM_CLOCK, metrics=metrics)
        self.objects = self._stores.objects
        self.segments = OpenSegmentCache(
            stores=self._stores.segments,
            keys=access.keys.ring(),
            cache_bytes=_OPEN_BYTES,
            plain_chunk_bytes=PLAIN_CHUNK_BYTES,
        )
        self.indexes = IndexBytes(
            self.segments, cache_bytes=_INDEX_BYTES, metrics=ReadMetrics(Metrics())
        )

    async def close(self) -> None:
        await self.indexes.close()
        await self.segments.close()
        await self._stores.close()


_lock = threading.Lock()
_shared: dict[_Key, ScanStores] = {}


def reads_files(store: ObjectStore) -> bool:
    """Tell if the store's bytes are files of this machine."""
    return store.url.startswith("file:")


def shared_scan_stores(access: WorkerAccess) -> ScanStores:
    """Return the stores of this process, so that tasks share connections and indexes."""
    key = _key(access)
    with _lock:
        opened = _shared.get(key)
        if opened is None:
            opened = _shared[key] = ScanStores(access, shared_loop_thread())
        return opened


def close_scan_stores() -> None:
    """Close all that this process has opened. For tests, and for processes that live on."""
    with _lock:
        shared = list(_shared.values())
        _shared.clear()
    for opened in shared:
        opened.background.run(opened.close())


def _key(access: WorkerAccess) -> _Key:
    return (
        access.stores.objects_url,
        access.stores.segments_url,
        tuple(sorted(access.stores.object_options.items())),
        tuple(sorted(access.keys.private.items())),
    )


def _after_fork() -> None:
    """Forget the stores: the parent's connections and its loop do not work in a forked child."""
    global _lock
    _lock = threading.Lock()
    _shared.clear()


os.register_at_fork(after_in_child=_after_fork)
