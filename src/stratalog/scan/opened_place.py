"""A place, opened: the stores and keys that executors read with, kept for the next split."""

import asyncio
import os
import threading
from typing import TypeAlias

from stratalog.clock import Clock, SystemClock
from stratalog.metrics import Metrics
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.scan.background import Background, shared_background
from stratalog.scan.model import ScanPlace
from stratalog.scan.place import key_ring
from stratalog.segment.index_bytes import IndexBytes
from stratalog.segment.open_segments import OpenSegments
from stratalog.segment.opened import PLAIN_CHUNK_BYTES
from stratalog.segment.read_metrics import ReadMetrics
from stratalog.segment.stores import SegmentStores

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
        self, place: ScanPlace, background: Background, *, metrics: Metrics | None = None
    ) -> None:
        self.background = background
        self.requests = asyncio.Semaphore(REQUESTS_AT_ONCE)
        clock = SystemClock()
        self.objects = _open(place.objects_url, place, clock, metrics)
        segments = self.objects
        if place.segments_url:
            segments = _open(place.segments_url, place, clock)
        self._stores = SegmentStores(segments, lambda url: _open(url, place, clock))
        self.segments = OpenSegments(
            stores=self._stores,
            keys=key_ring(place.private_keys_pem),
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
        if self._stores.own is not self.objects:
            await self._stores.own.close()
        await self.objects.close()


_lock = threading.Lock()
_places: dict[_Key, OpenPlace] = {}


def reads_files(store: ObjectStore) -> bool:
    """Whether its bytes are on this machine."""
    return store.url.startswith("file:")


def open_place(place: ScanPlace) -> OpenPlace:
    """Opened once per process: tasks of the same scan share connections and indexes."""
    key = _key(place)
    with _lock:
        opened = _places.get(key)
        if opened is None:
            opened = _places[key] = OpenPlace(place, shared_background())
        return opened


def close_places() -> None:
    """Let go of all that this process has opened. For tests, and for those who live on."""
    with _lock:
        places = list(_places.values())
        _places.clear()
    for opened in places:
        opened.background.run(opened.close())


def _open(url: str, place: ScanPlace, clock: Clock, metrics: Metrics | None = None) -> ObjectStore:
    # The options are the objects' store's. Another kind of store would not understand them.
    same_kind = url.partition(":")[0] == place.objects_url.partition(":")[0]
    options = place.object_options if same_kind else {}
    return open_store(url, options, clock=clock, metrics=metrics)


def _key(place: ScanPlace) -> _Key:
    return (
        place.objects_url,
        place.segments_url,
        tuple(sorted(place.object_options.items())),
        tuple(sorted(place.private_keys_pem.items())),
    )


def _after_fork() -> None:
    """Connections of the parent are not ours, nor is its loop."""
    global _lock
    _lock = threading.Lock()
    _places.clear()


os.register_at_fork(after_in_child=_after_fork)
