"""Deletion of segments that are no longer referenced, or that were never chained.

A segment is deleted in these steps, and a crash after each of them leaves:

1. The control plane begins the deletion (retention, DeleteRecords, the end of a topic, or
   `clear_unfinished`). From here on no reader is sent to the segment, and it can be neither
   finished nor chained. Readers that still hold its row have the grace period to finish.
2. The manifest is deleted before the other objects. For a reader of Kafka's plugin the manifest is
   the segment, so that a half-deleted segment is never taken for a whole one. (Our own readers use
   the copy of the manifest in the row, and are done by now.) A crash leaves a log and indexes that
   the row still names. The next run deletes the manifest again, which is a success, and goes on.
3. The log and the indexes are deleted. A crash leaves a row without objects, and the next run
   deletes them again, too.
4. The row is forgotten. The deletion is finished.

An abandoned upload may put objects under the same keys even later. They have no row, and the
sweeper deletes them.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

from stratalog.control.plane import ControlPlane
from stratalog.control.segments.errors import BoundaryMovedError, SegmentStateError
from stratalog.control.segments.model import ChainOutcome, Segment, SegmentState
from stratalog.errors import StratalogError
from stratalog.janitor.errors import DeletionRefusedError
from stratalog.janitor.partial_deletion import PartialDeletion
from stratalog.objects.store import ObjectStore
from stratalog.segment.keys import INDEXES_SUFFIX, LOG_SUFFIX, MANIFEST_SUFFIX
from stratalog.segment.metadata import SegmentMetadata
from stratalog.segment.stores import SegmentStores

log = logging.getLogger(__name__)


async def delete_doomed(
    metadata: SegmentMetadata,
    stores: SegmentStores,
    *,
    grace_ms: int,
    window_ms: int = 0,
    chunk_rows: int,
) -> int:
    """Delete the objects of segments whose grace is over, and forget them; return how many.

    Finished segments are kept for `window_ms` more, because a backup may name them. No backup is of
    use for an upload that was never finished.

    Raises `DeletionRefusedError` at the end if a store refused some of them. The next run tries
    these again.
    """
    run = _Run(stores)
    deleted = size_bytes = 0
    after: Segment | None = None
    while segments := await metadata.doomed(
        grace_ms=grace_ms, window_ms=window_ms, limit=chunk_rows, after=after
    ):
        after = segments[-1]
        gone: list[Segment] = []
        for store_url, neighbours in _by_store(segments).items():
            gone += await run.delete(store_url, neighbours)
        await metadata.forget([segment.segment_id for segment in gone])
        deleted += len(gone)
        size_bytes += sum(segment.size_bytes for segment in gone)
    if deleted:
        log.info("Deleted %d segments of %d bytes, which nothing refers to.", deleted, size_bytes)
    run.check()
    return deleted


class _Run:
    """The deletions of one run, apart for each store, so that a failure of one store does not
    concern the others."""

    def __init__(self, stores: SegmentStores) -> None:
        self._stores = stores
        self._deletions: dict[str, PartialDeletion[Segment]] = {}
        self._unusable: dict[str, str] = {}
        """The reasons by the URLs of stores that could not be opened or reached."""
        self._skipped = 0

    async def delete(self, store_url: str, segments: Sequence[Segment]) -> list[Segment]:
        if store_url not in self._unusable:
            try:
                return await self._in(store_url).run(segments)
            except StratalogError as error:
                self._unusable[store_url] = f"{segments[0].key_base}: {error}"
        self._skipped += len(segments)
        return []

    def check(self) -> None:
        failed = self._skipped + sum(one.failed for one in self._deletions.values())
        reasons = [*self._unusable.values(), *(one.reason for one in self._deletions.values())]
        if failed:
            raise DeletionRefusedError(
                f"{failed} segments could not be deleted and are tried again: "
                f"{next(filter(None, reasons))}"
            )

    def _in(self, store_url: str) -> PartialDeletion[Segment]:
        if store_url not in self._deletions:
            delete = partial(_delete_objects, self._stores.of(store_url))
            self._deletions[store_url] = PartialDeletion(delete, lambda segment: segment.key_base)
        return self._deletions[store_url]


async def clear_unfinished(control: ControlPlane, *, older_than_ms: int, chunk_rows: int) -> int:
    """Chain segments that lack only this last step; begin the deletion of other unchained ones.

    Returns the number of segments whose deletion began. A program that was still building one of
    them finds it gone and builds another.
    """
    removed = 0
    while segments := await control.segments.unchained(
        older_than_ms=older_than_ms, limit=chunk_rows
    ):
        # In the order of offsets, because chaining one segment may allow the next to be chained.
        for segment in sorted(segments, key=_chaining_order):
            removed += await _settle(control, segment)
    return removed


async def _settle(control: ControlPlane, segment: Segment) -> bool:
    """Chain the segment or begin its deletion. Return True if its deletion began."""
    if segment.state is SegmentState.COPY_FINISHED:
        try:
            outcome = await control.segments.chain(segment.segment_id)
        except SegmentStateError:
            # Another janitor has begun its deletion meanwhile.
            return False
        except BoundaryMovedError as error:
            log.info("A segment that can no longer be chained is deleted: %s.", error)
        else:
            return outcome is ChainOutcome.OVERTAKEN
    await control.segments.delete([segment.segment_id])
    return True


def _chaining_order(segment: Segment) -> tuple[object, ...]:
    return (*segment.topic_partition, segment.base_offset, segment.added_ms)


def _by_store(segments: Iterable[Segment]) -> dict[str, list[Segment]]:
    groups: dict[str, list[Segment]] = defaultdict(list)
    for segment in segments:
        groups[segment.store_url].append(segment)
    return groups


async def _delete_objects(store: ObjectStore, segments: Sequence[Segment]) -> None:
    # The control plane forgets segments of adopted topics at once. Should it ever name one here,
    # its objects still belong to another cluster, and are not deleted.
    keys = [segment.key_base for segment in segments if segment.owned]
    if keys:
        await store.delete([key + MANIFEST_SUFFIX for key in keys])
        await store.delete(
            [key + suffix for key in keys for suffix in (LOG_SUFFIX, INDEXES_SUFFIX)]
        )
