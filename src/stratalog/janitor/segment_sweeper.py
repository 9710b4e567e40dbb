"""The sweeper of the remote tier: takes the objects of segments that nobody knows.

They come from uploads that went on after their segment was given up and deleted. Unlike blocks
they need no tombstone before they are deleted: the row of a segment is there before anything of it
is uploaded, and ids are never used again. So an object that is in the store and whose id has no row
*afterwards* had one once. That row is gone for good: no `finish_segment` finds it, and nothing can
ever point at the object. This is why the rows are asked about after the listing, and never
listed before it.

1. Renew the claim on the store, as the sweeper of blocks does and for the same reasons.
2. List all that lies below the prefix of the cluster's own segments. Names that are not exactly
   those of segments are left alone, and so is what is young by the store's time.
3. Ask, a page at a time, which of their ids are known, in whatever state: also what waits for its
   deletion, or was adopted, has a row and is not the sweeper's.
4. Check the claim once more and delete the rest. A crash at any point leaves some of them to the
   next sweep.
"""

import logging

from stratalog.block.keys import BLOCKS_PREFIX
from stratalog.clock import Clock
from stratalog.control.plane import ControlPlane
from stratalog.errors import CallError
from stratalog.ids import SegmentId
from stratalog.janitor.marker import check_claim, renew_claim
from stratalog.janitor.sweeper import Swept
from stratalog.objects.store import ObjectStore
from stratalog.segment.keys import parse_segment_key

log = logging.getLogger(__name__)

_PAGE = 1000
"""Objects asked about and deleted at once. S3 deletes a thousand in one request."""
_EVERY = 60
"""One sweep in so many does something. The keys of segments tell no time, so that only a complete
listing finds anything, at a request for every thousand objects. Orphans are rare: it takes an
upload that was given up a day before it ended."""


class SegmentPrefixError(CallError):
    """The prefix of segments reaches into what belongs to blocks."""


def check_segment_prefix(prefix: str) -> None:
    """Raise if a store that also holds blocks cannot have its segments below this prefix."""
    if prefix.startswith(BLOCKS_PREFIX) or BLOCKS_PREFIX.startswith(prefix):
        raise SegmentPrefixError(
            f"remote.prefix {prefix!r} overlaps with {BLOCKS_PREFIX!r}, where the same store has "
            "its blocks: choose another, or give segments a store of their own (remote.objects)"
        )


class SegmentSweeper:
    """Sweeps the store that holds the cluster's own segments."""

    def __init__(
        self,
        control: ControlPlane,
        store: ObjectStore,
        *,
        prefix: str,
        clock: Clock,
        orphan_age_ms: int,
    ) -> None:
        self._control = control
        self._store = store
        self._prefix = prefix
        self._clock = clock
        self._orphan_age_ms = orphan_age_ms
        self._calls = 0

    async def sweep(self) -> Swept:
        """Take all orphans, now and then; else do nothing."""
        swept = Swept(examined=0, deleted=0, foreign=0)
        if self._calls % _EVERY == 0:
            swept = await self._sweep()
        self._calls += 1
        return swept

    async def _sweep(self) -> Swept:
        await renew_claim(self._control, self._store)
        horizon_ms = self._clock.now_ms() - self._orphan_age_ms
        examined = foreign = deleted = 0
        page: dict[str, SegmentId] = {}
        async for info in self._store.list(self._prefix):
            named = parse_segment_key(info.key, self._prefix)
            if named is None:
                foreign += 1
                continue
            examined += 1
            if info.modified_ms <= horizon_ms:
                page[info.key] = named.segment_id
            if len(page) == _PAGE:
                deleted += await self._take(page)
        deleted += await self._take(page)
        if deleted:
            log.info("Deleted %d objects of segments that nobody knows.", deleted)
        return Swept(examined=examined, deleted=deleted, foreign=foreign)

    async def _take(self, page: dict[str, SegmentId]) -> int:
        """Empty the page, and delete those of its objects whose segments have no row."""
        candidates = dict(page)
        page.clear()
        known = await self._control.known_segments([*candidates.values()]) if candidates else set()
        orphans = [key for key, segment_id in candidates.items() if segment_id not in known]
        if orphans:
            await check_claim(self._control, self._store)
            await self._store.delete(orphans)
        return len(orphans)
