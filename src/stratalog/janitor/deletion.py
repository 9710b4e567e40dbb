"""Deletion of marked objects after their grace: first the objects, then their rows.

A crash between the two leaves a marked row whose object is gone. The next run deletes the object
again, which is a success, and forgets the row.
"""

import logging
from collections.abc import Sequence

from stratalog.control.objects.model import StoredObjectRow
from stratalog.control.plane import ControlPlane
from stratalog.janitor.errors import DeletionRefusedError
from stratalog.janitor.partial_deletion import PartialDeletion
from stratalog.objects.store import ObjectStore

log = logging.getLogger(__name__)


async def purge_topics(control: ControlPlane, *, window_ms: int, chunk_rows: int) -> int:
    """Remove the rows of topics that were deleted longer ago than the window. An object that loses
    its last row is marked."""
    removed = 0
    while chunk := await control.topics.purge_deleted(window_ms=window_ms, max_rows=chunk_rows):
        removed += chunk
    if removed:
        log.info("%d rows and segments of deleted topics were removed.", removed)
    return removed


async def delete_marked(
    control: ControlPlane, store: ObjectStore, *, grace_ms: int, chunk_rows: int
) -> int:
    """Delete the objects whose grace is over; return how many.

    Raises `DeletionRefusedError` at the end if the store refused some of them. These stay marked,
    and the next run tries again.
    """

    async def delete(rows: Sequence[StoredObjectRow]) -> None:
        await store.delete([row.key for row in rows])

    deletion = PartialDeletion(delete, lambda row: row.key)
    deleted = size_bytes = 0
    after: StoredObjectRow | None = None
    while rows := await control.objects.marked(grace_ms=grace_ms, limit=chunk_rows, after=after):
        after = rows[-1]
        gone = await deletion.run(rows)
        await control.objects.forget([row.object_id for row in gone])
        deleted += len(gone)
        size_bytes += sum(row.size_bytes for row in gone)
    if deleted:
        log.info("Deleted %d objects of %d bytes, which nothing refers to.", deleted, size_bytes)
    if deletion.failed:
        raise DeletionRefusedError(
            f"{deletion.failed} objects could not be deleted from {store.url} and stay marked: "
            f"{deletion.reason}"
        )
    return deleted
