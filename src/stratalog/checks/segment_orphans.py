"""Orphans of segments: old objects below the cluster's own prefix whose segments have no row."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping

from stratalog.checks.promises import waste
from stratalog.checks.remote_tier import RemoteTier
from stratalog.checks.report import Problem
from stratalog.control.plane import ControlPlane
from stratalog.ids import SegmentId, TopicId
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import ObjectInfo, ObjectStore
from stratalog.segment.keys import parse_segment_key

_PAGE = 1000


async def segment_orphans(
    control: ControlPlane, tier: RemoteTier, counts: Counter[str], old_since_ms: int
) -> AsyncIterator[tuple[str, Problem]]:
    """Yield the keys of orphans. The sweeper of a running broker deletes them in time.

    Segments that Kafka stored beside an exported topic are not orphans.
    """
    page: dict[tuple[TopicId, SegmentId], list[ObjectInfo]] = {}
    async for info in tier.stores.own.list(tier.prefix):
        named = parse_segment_key(info.key, tier.prefix)
        if named is None:
            continue
        counts["segment_objects"] += 1
        counts["segment_bytes"] += info.size_bytes
        if info.modified_ms <= old_since_ms:
            page.setdefault((named.topic_id, named.segment_id), []).append(info)
        if len(page) == _PAGE:
            async for orphan in _unknown(control, tier.stores.own, page):
                yield orphan
            page = {}
    async for orphan in _unknown(control, tier.stores.own, page):
        yield orphan


async def _unknown(
    control: ControlPlane,
    store: ObjectStore,
    page: Mapping[tuple[TopicId, SegmentId], list[ObjectInfo]],
) -> AsyncIterator[tuple[str, Problem]]:
    if not page:
        return
    # A row is added before its objects, so a row that is missing now will never be added.
    known = await control.segments.known([segment_id for _, segment_id in page])
    shared = await control.segments.shared_topics(sorted({topic_id for topic_id, _ in page}))
    for (topic_id, segment_id), objects in page.items():
        if segment_id in known or topic_id in shared:
            continue
        for info in objects:
            # A deletion that ended since the listing has deleted the objects before the row.
            if await _is_there(store, info.key):
                yield info.key, waste(info, "segment")


async def _is_there(store: ObjectStore, key: str) -> bool:
    try:
        await store.head(key)
    except ObjectNotFoundError:
        return False
    return True
