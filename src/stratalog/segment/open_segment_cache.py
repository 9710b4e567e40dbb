"""A cache of segments that are open for reading."""

from stratalog.control.segments.model import Segment
from stratalog.segment.byte_cache import ByteCache
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.open_segment import Edition, OpenSegment, edition_of, open_segment
from stratalog.segment.single_flight import SingleFlight
from stratalog.segment.stores import SegmentStores
from stratalog.segment.thread_offload import INLINE_BYTES, offload

_OPEN_BYTES = 4096
"""About the memory of a manifest beside its text, without its list of chunks."""
_CHUNK_BYTES = 100
"""About the memory of a chunk's size and end in a manifest that lists them."""
_SEALED = '"encryption"'


class OpenSegmentCache:
    def __init__(
        self, *, stores: SegmentStores, keys: KeyRing, cache_bytes: int, plain_chunk_bytes: int
    ) -> None:
        self._stores = stores
        self._keys = keys
        self._plain_chunk_bytes = plain_chunk_bytes
        self._cache: ByteCache[Edition, OpenSegment] = ByteCache(cache_bytes)
        self._flights: SingleFlight[Edition, OpenSegment] = SingleFlight()

    async def open(self, segment: Segment) -> OpenSegment:
        key = edition_of(segment)
        found = self._cache.find(key)
        if found is not None:
            return found
        return await self._flights.share(key, lambda: self._open(key, segment))

    async def close(self) -> None:
        await self._flights.close()

    async def _open(self, key: Edition, segment: Segment) -> OpenSegment:
        assert segment.uploaded is not None
        text = segment.uploaded.manifest
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
