"""The stores and keys that an executor reads with, opened once and kept for the next split."""

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
"""What is asked for at once, or up to twice as much: large enough to cost little per byte, small
enough for several to be on their way."""
MAPPED_FETCH_BYTES = 64 * 1024 * 1024
"""The same of files whose bytes are not copied. Usually that is a whole piece, so that no batch is
torn."""
REQUESTS_AT_ONCE = 16
"""Of all splits of a process. One connection to S3 carries some 50 to 100 MB/s."""
_OPEN_BYTES = 8 * 1024 * 1024
_INDEX_BYTES = 64 * 1024 * 1024
"""An index of a segment of 1 GiB has 2 MB, and every split of it wants the same one."""

_Key: TypeAlias = tuple[str, str, tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]


class OpenPlace:
    """Everything here belongs to the background's loop, where it was made."""

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
_places: dict[_Key, OpenPlace] = {}


def reads_files(store: ObjectStore) -> bool:
    """Whether its bytes are on this machine."""
    return store.url.startswith("file:")


def open_place(access: WorkerAccess) -> OpenPlace:
    """Opened once per process: tasks of the same scan share connections and indexes."""
    key = _key(access)
    with _lock:
        opened = _places.get(key)
        if opened is None:
            opened = _places[key] = OpenPlace(access, shared_loop_thread())
        return opened


def close_places() -> None:
    """Let go of all that this process has opened. For tests, and for those who live on."""
    with _lock:
        places = list(_places.values())
        _places.clear()
    for opened in places:
        opened.background.run(opened.close())


def _key(access: WorkerAccess) -> _Key:
    return (
        access.stores.objects_url,
        access.stores.segments_url,
        tuple(sorted(access.stores.object_options.items())),
        tuple(sorted(access.keys.private.items())),
    )


def _after_fork() -> None:
    """Connections of the parent are not ours, nor is its loop."""
    global _lock
    _lock = threading.Lock()
    _places.clear()


os.register_at_fork(after_in_child=_after_fork)
