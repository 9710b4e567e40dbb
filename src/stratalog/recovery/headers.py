"""The headers of record batches in objects, read once each."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from stratalog.batch.header import HEADER_BYTES, BatchHeader, unpack_header
from stratalog.ids import ObjectId
from stratalog.objects.store import ObjectStore, Range

_AT_ONCE = 1000


class HeaderReader:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._headers: dict[ObjectId, dict[int, BatchHeader]] = defaultdict(dict)

    def at(self, object_id: ObjectId, byte_offset: int) -> BatchHeader:
        """Return a header that was read."""
        return self._headers[object_id][byte_offset]

    async def read(self, object_id: ObjectId, key: str, byte_offsets: Iterable[int]) -> None:
        known = self._headers[object_id]
        missing = sorted(set(byte_offsets) - set(known))
        for start in range(0, len(missing), _AT_ONCE):
            await self._read(known, key, missing[start : start + _AT_ONCE])

    async def _read(self, known: dict[int, BatchHeader], key: str, places: Sequence[int]) -> None:
        ranges = [Range(place, place + HEADER_BYTES) for place in places]
        for place, data in zip(places, await self._store.get_ranges(key, ranges), strict=True):
            known[place] = unpack_header(data)
