"""Segments that were opened for reading, kept for the next read of them."""

from typing import TypeAlias

from stratalog.control.segment_model import Segment
from stratalog.ids import SegmentId
from stratalog.segment.cache import ByteCache
from stratalog.segment.flights import Flights
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.offload import INLINE_BYTES, offload
from stratalog.segment.opened import OpenSegment, open_segment
from stratalog.segment.stores import SegmentStores

_OPEN_BYTES = 4096
"""About what a manifest takes in memory beside its text, before its chunks are listed."""
_CHUNK_BYTES = 100
"""About what a chunk's size and end take in a manifest that lists them."""
_SEALED = '"encryption"'

_Key: TypeAlias = tuple[SegmentId, int]
"""With a hash of the manifest, because a repair may change it."""


class OpenSegments:
    def __init__(
        self, *, stores: SegmentStores, keys: KeyRing, cache_bytes: int, plain_chunk_bytes: int
    ) -> None:
        self._stores = stores
        self._keys = keys
        self._plain_chunk_bytes = plain_chunk_bytes
        self._cache: ByteCache[_Key, OpenSegment] = ByteCache(cache_bytes)
        self._flights: Flights[_Key, OpenSegment] = Flights()

    async def open(self, segment: Segment) -> OpenSegment:
        assert segment.uploaded is not None, f"segment {segment.segment_id} is not finished"
        key = segment.segment_id, hash(segment.uploaded.manifest)
        found = self._cache.find(key)
        if found is not None:
            return found
        text = segment.uploaded.manifest
        return await self._flights.share(key, lambda: self._open(key, segment, text))

    async def close(self) -> None:
        await self._flights.close()

    async def _open(self, key: _Key, segment: Segment, text: str) -> OpenSegment:
        # Unsealing a data key is slow, whatever its size.
        size_bytes = INLINE_BYTES + 1 if _SEALED in text else len(text)
        opened = await offload(
            size_bytes,
            open_segment,
            segment,
            self._stores.of(segment.store_url),
            self._keys,
            plain_chunk_bytes=self._plain_chunk_bytes,
        )
        size_bytes = _OPEN_BYTES + len(text)
        if not opened.is_plain:
            size_bytes += _CHUNK_BYTES * opened.chunks.count
        self._cache.add(key, opened, size_bytes, at=0)
        return opened
