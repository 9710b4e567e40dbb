"""Objects from their commit, or their tombstone, to their end."""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from stratalog.control.ledger import Ledger
from stratalog.control.objects.model import (
    OBJECT_ID,
    OBJECTS,
    STORED_OBJECT,
    ObjectKind,
    StoredObjectRow,
)
from stratalog.control.scans.leases import MARK_MS
from stratalog.control.sql.database import Connection, Rows, as_uuid
from stratalog.ids import ObjectId

_BEFORE_ALL = UUID(int=0)
_TOMBSTONE = OBJECTS.shape("object_id", "key")
_INSERT_TOMBSTONES = OBJECTS.insert(
    _TOMBSTONE,
    kind="$1",
    state="'barred'",
    size_bytes="0",
    broker_id="-1",
    committed_ms="{now_ms}",
)
_MARKED = f"""
    SELECT {STORED_OBJECT.columns} FROM objects
    WHERE state = 'marked' AND marked_ms <= {{now_ms}} - $1
        AND marked_ms < COALESCE(
            (SELECT MIN(started_ms) FROM leases WHERE expires_ms > {{now_ms}}), marked_ms + 1
        )
        AND (marked_ms, object_id) > ($2, $3)
    ORDER BY marked_ms, object_id LIMIT $4
"""
_ALL = f"""
    SELECT {STORED_OBJECT.columns} FROM objects
    WHERE state IN ('live', 'marked') AND object_id > $1 ORDER BY object_id LIMIT $2
"""
_MARK = f"""
    UPDATE objects SET state = 'marked', marked_ms = {MARK_MS} FROM {{rows}}
    WHERE objects.object_id = r.object_id AND objects.state = 'live'
        AND NOT EXISTS (SELECT 1 FROM batches WHERE batches.object_id = r.object_id)
"""
_LOCK = """
    SELECT objects.object_id FROM {rows} JOIN objects ON objects.object_id = r.object_id
    ORDER BY objects.object_id {for_update_of objects}
"""


class ObjectsLedger(Ledger):
    async def marked(
        self, *, grace_ms: int, limit: int, after: StoredObjectRow | None = None
    ) -> list[StoredObjectRow]:
        """Objects marked longer ago than the grace period, and before every live lease began.
        Oldest first, from the one after `after` on."""
        rows = await self._database.read(
            lambda connection: connection.fetch(
                _MARKED,
                grace_ms,
                -1 if after is None else after.marked_ms,
                _BEFORE_ALL if after is None else after.object_id,
                limit,
            )
        )
        return STORED_OBJECT.read_all(rows)

    async def forget(self, ids: Sequence[ObjectId]) -> None:
        """Remove the rows of marked objects that are gone from the store."""

        async def work(connection: Connection) -> None:
            source = _id_rows(ids)
            await connection.execute(
                "DELETE FROM objects WHERE state = 'marked' AND answers IS NULL"
                " AND object_id IN (SELECT object_id FROM {rows})",
                rows=source,
            )
            await connection.execute(
                "UPDATE objects SET state = 'gone' WHERE state = 'marked'"
                " AND object_id IN (SELECT object_id FROM {rows})",
                rows=source,
            )

        await self._database.write(work)

    async def bar(self, objects: Mapping[ObjectId, str]) -> set[ObjectId]:
        """Put tombstones under the ids (with their keys) that have no row; return which.

        Ids that already carry a tombstone, or whose object was deleted, are returned too: an object
        that the store holds under such a key may be deleted.
        """

        async def work(connection: Connection) -> set[ObjectId]:
            await insert_tombstones(connection, objects)
            rows = await connection.fetch(
                "SELECT objects.object_id FROM {rows}"
                " JOIN objects ON objects.object_id = r.object_id"
                " WHERE objects.state IN ('barred', 'gone')",
                rows=_id_rows(objects),
            )
            return {ObjectId(as_uuid(row[0])) for row in rows}

        return await self._database.write(work)

    async def sizes(self, ids: Sequence[ObjectId]) -> dict[ObjectId, int]:
        """Return the sizes, with footers, of the objects that are in the store: live and marked."""
        rows = await self._database.read(
            lambda connection: connection.fetch(
                "SELECT objects.object_id, objects.size_bytes FROM {rows}"
                " JOIN objects ON objects.object_id = r.object_id"
                " WHERE objects.state IN ('live', 'marked')",
                rows=_id_rows(ids),
            )
        )
        return {ObjectId(as_uuid(object_id)): size_bytes for object_id, size_bytes in rows}

    async def all(self, *, after: ObjectId | None = None, limit: int) -> list[StoredObjectRow]:
        """Live and marked objects in id order, for `fsck`."""
        rows = await self._database.read(
            lambda connection: connection.fetch(_ALL, after or _BEFORE_ALL, limit)
        )
        return STORED_OBJECT.read_all(rows)


async def insert_tombstones(connection: Connection, objects: Mapping[ObjectId, str]) -> None:
    """Take the ids that are free. An id that a running commit takes is waited for."""
    await connection.execute(
        f"{_INSERT_TOMBSTONES} ON CONFLICT (object_id) DO NOTHING",
        ObjectKind.BLOCK.value,
        rows=Rows(_TOMBSTONE, sorted(objects.items())),
    )


async def mark_unreferenced(connection: Connection, ids: Iterable[ObjectId]) -> None:
    """Mark the objects that have no row left. Rows were removed in this transaction."""
    unique = set(ids)
    await lock_to_mark(connection, unique)
    await connection.execute(_MARK, rows=_id_rows(unique))


async def lock_to_mark(connection: Connection, ids: Iterable[ObjectId]) -> None:
    """Take the locks of `mark_unreferenced`; also early, before one that must not be held for long.

    The objects are locked before anything is counted: a second remover then counts after the
    first has committed, so one of the two sees that nothing is left. The lease lock makes a lease
    either older than the mark, or blind to the rows that are gone.
    """
    await connection.fetch(_LOCK, rows=_id_rows(set(ids)))
    await connection.lock("leases", shared=True)


def _id_rows(ids: Iterable[ObjectId]) -> Rows:
    return Rows(OBJECT_ID, [(object_id,) for object_id in ids])
