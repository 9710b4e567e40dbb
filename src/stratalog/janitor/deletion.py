"""Deletion: unreferenced, grace, delete. Objects first, then the rows that remember them.

A crash between the two leaves a marked row whose object is gone; the next run deletes it again,
which is a success, and forgets the row.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from stratalog.control.model import StoredObjectRow
from stratalog.control.plane import ControlPlane
from stratalog.errors import CallError, RetriableError, StratalogError
from stratalog.objects.store import ObjectStore

log = logging.getLogger(__name__)

HOPELESS = 100
"""So many refusals without one success are a lost permission, not a few held objects."""


class DeletionRefusedError(CallError):
    """The store refuses to delete some objects; the others were deleted."""


@dataclass(slots=True)
class _Chunk:
    deleted: Sequence[StoredObjectRow]
    failures: Sequence[str] = ()


async def purge_topics(control: ControlPlane, *, chunk_rows: int) -> int:
    """Remove the rows of deleted topics, which marks the objects that nobody else needs."""
    removed = 0
    while chunk := await control.purge_deleted_topics(max_rows=chunk_rows):
        removed += chunk
    return removed


async def delete_marked(
    control: ControlPlane, store: ObjectStore, *, grace_ms: int, chunk_rows: int
) -> int:
    """Delete the objects whose grace is over; return how many.

    Raises `DeletionRefusedError` after all that could be deleted in the chunk is. What failed
    stays marked and is tried again by the next run.
    """
    deleted = 0
    while rows := await control.marked_objects(grace_ms=grace_ms, limit=chunk_rows):
        chunk = await _delete_chunk(store, rows)
        await control.forget_objects([row.object_id for row in chunk.deleted])
        deleted += len(chunk.deleted)
        if chunk.failures:
            raise DeletionRefusedError(
                f"{len(chunk.failures)} objects could not be deleted from {store.url} and stay "
                f"marked: {chunk.failures[0]}"
            )
    return deleted


async def _delete_chunk(store: ObjectStore, rows: Sequence[StoredObjectRow]) -> _Chunk:
    try:
        await store.delete([row.key for row in rows])
    except RetriableError:
        raise
    except StratalogError as error:
        log.info("Deleting %d objects at once failed, now one by one: %s", len(rows), error)
        return await _delete_singly(store, rows)
    return _Chunk(rows)


async def _delete_singly(store: ObjectStore, rows: Sequence[StoredObjectRow]) -> _Chunk:
    """One refused object (say, under a legal hold) must not keep the others alive."""
    deleted: list[StoredObjectRow] = []
    failures: list[str] = []
    for row in rows:
        try:
            await store.delete([row.key])
        except StratalogError as error:
            failures.append(f"{row.key}: {error}")
            if len(failures) == HOPELESS and not deleted:
                break
        else:
            deleted.append(row)
    return _Chunk(deleted, failures)
