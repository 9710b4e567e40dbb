"""The sweeper of the remote tier: finds the objects of segments that nobody knows.

They come from uploads whose segment was given up, and from the pipeline: its workers upload a log
before the segment is added, and die, or finish when nobody waits for them any more.

1. Renew the claim on the store, as the sweeper of blocks does and for the same reasons.
2. List all that lies below the prefix of the cluster's own segments. Names that are not exactly
   those of segments are left alone, and so is what is young by the store's time.
3. Check the claim once more, because the listing may have taken long, and bar the segments, a page
   at a time. In one transaction the control plane leaves out those that it knows, in whatever
   state, and puts tombstones under the others: whoever is about to add one of them is refused.
   A tombstone is a segment whose deletion has begun, so the rest is `delete_doomed`'s, which
   finds it whatever becomes of us.

Nothing is deleted here. A segment that was added after the listing is known, and left alone; one
that is added after the deletion finds, on its second look, that its log is gone.
"""

import logging

from stratalog.block.keys import BLOCKS_PREFIX
from stratalog.clock import Clock
from stratalog.control.plane import ControlPlane
from stratalog.errors import CallError
from stratalog.control.segment_model import SegmentToBar
from stratalog.ids import SegmentId
from stratalog.janitor.marker import check_claim, renew_claim
from stratalog.janitor.sweeper import Swept
from stratalog.objects.store import ObjectStore
from stratalog.segment.keys import parse_segment_key

log = logging.getLogger(__name__)

_PAGE = 1000
"""Segments asked about at once."""
_EVERY = 60
"""One sweep in so many does something. The keys of segments tell no time, so that only a complete
listing finds anything, at a request for every thousand objects."""


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
        """Bar all orphans, now and then; else do nothing. Answers barred ones as deleted."""
        swept = Swept(examined=0, deleted=0, foreign=0)
        if self._calls % _EVERY == 0:
            swept = await self._sweep()
        self._calls += 1
        return swept

    async def _sweep(self) -> Swept:
        await renew_claim(self._control, self._store)
        horizon_ms = self._clock.now_ms() - self._orphan_age_ms
        examined = foreign = barred = 0
        page: dict[SegmentId, SegmentToBar] = {}
        async for info in self._store.list(self._prefix):
            named = parse_segment_key(info.key, self._prefix)
            if named is None:
                foreign += 1
                continue
            examined += 1
            if info.modified_ms <= horizon_ms:
                page[named.segment_id] = SegmentToBar(
                    topic_id=named.topic_id,
                    partition=named.partition,
                    base_offset=named.base_offset,
                    key_base=info.key.removesuffix(named.suffix),
                )
            if len(page) == _PAGE:
                barred += await self._bar(page)
        barred += await self._bar(page)
        if barred:
            log.info("The deletion of %d segments that nobody knows has begun.", barred)
        return Swept(examined=examined, deleted=barred, foreign=foreign)

    async def _bar(self, page: dict[SegmentId, SegmentToBar]) -> int:
        """Empty the page, and put tombstones under those of its segments that have no row."""
        candidates = dict(page)
        page.clear()
        known = await self._control.known_segments([*candidates]) if candidates else set()
        orphans = {key: segment for key, segment in candidates.items() if key not in known}
        if not orphans:
            return 0
        await check_claim(self._control, self._store)
        return len(await self._control.bar_segments(orphans))
