"""The sweeper of the remote tier: deletes the objects of segments without a row.

Such objects come from uploads whose segment was abandoned, and from the pipeline. Its workers
upload a log before the segment is added, and may die in between, or finish after their run ended.

1. Renew the claim on the store, as the sweeper of blocks does and for the same reasons.
2. List all objects below the prefix of the cluster's own segments. Four kinds are left alone:
   objects whose names are not exactly names of segments, objects that are young by the store's
   time, objects whose writer was never announced (`announced.py`), and objects of topics that were
   exported to Kafka. Kafka may keep segments of its own here, whose ids have no writer.
3. Bar the segments, a page at a time. In one transaction the control plane leaves out the segments
   that it knows, in whatever state, and puts tombstones under the others. A program that is about
   to add one of these segments is then refused. A tombstone is a segment whose deletion has begun,
   so that a crash from here on leaves the rest to `delete_doomed`.
4. Check the claim once more, because the listing may have taken long, and delete the objects of the
   barred segments.

When its objects are gone, a tombstone is forgotten like any other segment. A program that adds the
segment even later finds, when it looks a second time, that the log is gone.
"""

import logging
from collections.abc import Mapping

from stratalog.block.keys import BLOCKS_PREFIX, SPLITS_PREFIX
from stratalog.clock import Clock
from stratalog.control.identity.model import StoreRole
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.model import SegmentToBar
from stratalog.ids import SegmentId
from stratalog.janitor.announced import announced_ids
from stratalog.janitor.errors import SegmentPrefixError
from stratalog.janitor.sweeper import Swept
from stratalog.objects.store import ObjectStore
from stratalog.opening.claim import check_claim, renew_claim
from stratalog.segment.keys import SegmentKey, parse_segment_key

log = logging.getLogger(__name__)

_PAGE = 1000
"""Objects asked about and deleted at once. S3 deletes a thousand in one request."""
_EVERY = 60
"""The sweeper works on every 60th call only. Keys of segments tell no time, so that it takes a
complete listing to find orphans, at a request for every thousand objects."""


def check_segment_prefix(prefix: str) -> None:
    """Raise if a store that also holds blocks cannot have its segments below this prefix."""
    for taken, objects in ((BLOCKS_PREFIX, "blocks"), (SPLITS_PREFIX, "split files")):
        if prefix.startswith(taken) or taken.startswith(prefix):
            raise SegmentPrefixError(
                f"remote.prefix {prefix!r} overlaps with {taken!r}, where the same store has its "
                f"{objects}: choose another, or give segments a store of their own (remote.objects)"
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
        role: StoreRole = StoreRole.BLOCKS,
    ) -> None:
        self._control = control
        self._store = store
        self._role = role
        self._prefix = prefix
        self._clock = clock
        self.orphan_age_ms = orphan_age_ms
        self._calls = 0
        self._unannounced = 0

    async def sweep(self) -> Swept:
        """Delete all orphans on the first call and every `_EVERY` calls. Other calls do nothing."""
        swept = Swept(examined=0, deleted=0, foreign=0)
        if self._calls % _EVERY == 0:
            swept = await self._sweep()
        self._calls += 1
        return swept

    async def _sweep(self) -> Swept:
        await renew_claim(self._control, self._store, self._role)
        horizon_ms = self._clock.now_ms() - self.orphan_age_ms
        examined = foreign = deleted = self._unannounced = 0
        page: dict[str, SegmentKey] = {}
        last: SegmentId | None = None
        async for info in self._store.list(self._prefix):
            named = parse_segment_key(info.key, self._prefix)
            if named is None:
                foreign += 1
                continue
            examined += 1
            # The objects of one segment follow each other, and must come into the same page: a
            # segment that was barred with an earlier page counts as known.
            if len(page) >= _PAGE and named.segment_id != last:
                deleted += await self._take(page)
            if info.modified_ms <= horizon_ms:
                page[info.key] = named
                last = named.segment_id
        deleted += await self._take(page)
        if deleted:
            log.info("Deleted %d objects of segments without a row.", deleted)
        foreign += self._unannounced
        return Swept(examined=examined, deleted=deleted, foreign=foreign)

    async def _take(self, page: dict[str, SegmentKey]) -> int:
        """Empty the page, and delete its objects whose segments have no row."""
        candidates = await self._own(page)
        page.clear()
        ids = await announced_ids(
            self._control, {named.segment_id for named in candidates.values()}
        )
        self._unannounced += sum(named.segment_id not in ids for named in candidates.values())
        candidates = {key: named for key, named in candidates.items() if named.segment_id in ids}
        known = await self._control.segments.known([*ids]) if ids else set()
        barred = await self._bar({k: n for k, n in candidates.items() if n.segment_id not in known})
        orphans = [key for key, named in candidates.items() if named.segment_id in barred]
        if orphans:
            await check_claim(self._control, self._store, self._role)
            await self._store.delete(orphans)
        return len(orphans)

    async def _own(self, page: Mapping[str, SegmentKey]) -> dict[str, SegmentKey]:
        # The control plane is asked after the listing: it notes that a topic is shared before
        # Kafka stores anything here, so that every segment of Kafka in the page is recognised.
        topics = sorted({named.topic_id for named in page.values()})
        shared = await self._control.segments.shared_topics(topics) if topics else set()
        return {key: named for key, named in page.items() if named.topic_id not in shared}

    async def _bar(self, unknown: Mapping[str, SegmentKey]) -> set[SegmentId]:
        tombstones = {
            named.segment_id: SegmentToBar(
                topic_id=named.topic_id,
                partition=named.partition,
                base_offset=named.base_offset,
                key_base=key.removesuffix(named.suffix),
            )
            for key, named in unknown.items()
        }
        return await self._control.segments.bar(tombstones) if tombstones else set()
