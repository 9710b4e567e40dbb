"""The indexes of segments: fetched one by one, decrypted, checked, cached."""

from typing import TypeAlias

from stratalog.control.segments.model import Segment
from stratalog.errors import DamagedError
from stratalog.objects.store import Range
from stratalog.segment.byte_cache import ByteCache
from stratalog.segment.epoch_checkpoint import decode_checkpoint
from stratalog.segment.errors import IndexDamagedError
from stratalog.segment.index_object import read_index
from stratalog.segment.model import IndexKind
from stratalog.segment.offset_index import OffsetIndex
from stratalog.segment.open_segment import Edition, OpenSegment, edition_of
from stratalog.segment.open_segment_cache import OpenSegmentCache
from stratalog.segment.producer_snapshot import decode_snapshot
from stratalog.segment.read_metrics import ReadMetrics
from stratalog.segment.single_flight import SingleFlight
from stratalog.segment.thread_offload import offload
from stratalog.segment.time_index import TimeIndex
from stratalog.segment.txn_index import decode_aborted

_Key: TypeAlias = tuple[Edition, IndexKind]


class IndexBytes:
    def __init__(self, opened: OpenSegmentCache, *, cache_bytes: int, metrics: ReadMetrics) -> None:
        self._opened = opened
        self._cache: ByteCache[_Key, bytes] = ByteCache(cache_bytes)
        self._metrics = metrics
        self._flights: SingleFlight[_Key, bytes] = SingleFlight()

    async def read(self, segment: Segment, kind: IndexKind) -> bytes:
        """Return the index as the file that Kafka would write. Empty if the segment has none."""
        key = edition_of(segment), kind
        found = self._cache.find(key)
        near = found is not None or key in self._flights
        self._metrics.looked("index", hits=near, misses=not near)
        if found is not None:
            return found
        return await self._flights.share(key, lambda: self._fetch(key, segment))

    async def offset_index(self, segment: Segment) -> OffsetIndex:
        return OffsetIndex(await self.read(segment, IndexKind.OFFSET), segment.base_offset)

    def cached_offset_index(self, segment: Segment) -> OffsetIndex | None:
        found = self._cache.find((edition_of(segment), IndexKind.OFFSET))
        return None if found is None else OffsetIndex(found, segment.base_offset)

    async def time_index(self, segment: Segment) -> TimeIndex:
        return TimeIndex(await self.read(segment, IndexKind.TIMESTAMP), segment.base_offset)

    def forget(self, segment: Segment) -> None:
        """Drop indexes that lead to no batch, so that repaired ones are fetched."""
        for kind in (IndexKind.OFFSET, IndexKind.TIMESTAMP):
            self._cache.discard((edition_of(segment), kind))

    async def close(self) -> None:
        await self._flights.close()

    async def _fetch(self, key: _Key, segment: Segment) -> bytes:
        _, kind = key
        opened = await self._opened.open(segment)
        index_range = opened.manifest.indexes.get(kind)
        data = b""
        if index_range is not None and index_range.size_bytes:
            asked = Range(index_range.position, index_range.end)
            (stored,) = await opened.store.get_ranges(opened.indexes_key, [asked])
            self._metrics.request("index", len(stored))
            data = await offload(len(stored), _decode, opened, kind, stored)
        self._cache.add(key, data, len(data), at=0)
        return data


def _decode(opened: OpenSegment, kind: IndexKind, stored: bytes | bytearray | memoryview) -> bytes:
    name = f"object {opened.indexes_key}"
    data = read_index(opened.manifest, kind, stored, opened.cipher, name)
    try:
        _check(opened.segment, kind, data)
    except DamagedError as error:
        raise IndexDamagedError(f"{name}: {error}") from error
    return data


def _check(segment: Segment, kind: IndexKind, data: bytes) -> None:
    """Check the index as far as possible without the log. Reads check the log itself anyway."""
    if kind is IndexKind.OFFSET:
        OffsetIndex(data, segment.base_offset).check(segment.size_bytes)
    elif kind is IndexKind.TIMESTAMP:
        TimeIndex(data, segment.base_offset).check(segment.last_offset)
    elif kind is IndexKind.TRANSACTION:
        decode_aborted(data)
    elif kind is IndexKind.PRODUCER_SNAPSHOT:
        decode_snapshot(data)
    elif kind is IndexKind.LEADER_EPOCH:
        decode_checkpoint(data)
