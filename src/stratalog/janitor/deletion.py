"""Deletion: unreferenced, grace, delete. Objects first, then the rows that remember them.

A crash between the two leaves a marked row whose object is gone; the next run deletes it again,
which is a success, and forgets the row.
"""

from collections.abc import Sequence

from stratalog.control.objects.model import StoredObjectRow
from stratalog.control.plane import ControlPlane
from stratalog.errors import CallError
from stratalog.janitor.refusals import Deletions
from stratalog.objects.store import ObjectStore


class DeletionRefusedError(CallError):
    """The store refuses to delete some objects; the others were deleted."""


async def purge_topics(control: ControlPlane, *, chunk_rows: int) -> int:
    """Remove the rows of deleted topics, which marks the objects that nobody else needs."""
    removed = 0
    while chunk := await control.topics.purge_deleted(max_rows=chunk_rows):
        removed += chunk
    return removed


async def delete_marked(
    control: ControlPlane, store: ObjectStore, *, grace_ms: int, chunk_rows: int
) -> int:
    """Delete the objects whose grace is over; return how many.

    Raises `DeletionRefusedError` after all that could be deleted is. What failed stays marked and
    is tried again by the next run.
    """

    async def delete(rows: Sequence[StoredObjectRow]) -> None:
        await store.delete([row.key for row in rows])

    deletions = Deletions(delete, lambda row: row.key)
    deleted = 0
    after: StoredObjectRow | None = None
    while rows := await control.objects.marked(grace_ms=grace_ms, limit=chunk_rows, after=after):
        after = rows[-1]
        gone = await deletions.run(rows)
        await control.objects.forget([row.object_id for row in gone])
        deleted += len(gone)
    if deletions.failed:
        raise DeletionRefusedError(
            f"{deletions.failed} objects could not be deleted from {store.url} and stay marked: "
            f"{deletions.reason}"
        )
    return deleted
