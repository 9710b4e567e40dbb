"""Objects of which little is still needed, and what that is.

Most live objects are not dead, and whether one is takes all its rows to tell. So they are walked
through in steps of so many objects, in the order of an index, and no statement looks at more.
"""

from collections.abc import Sequence
from uuid import UUID

from stratalog.control.ledger import Ledger
from stratalog.control.log.model import Coordinates
from stratalog.control.log.reads import ROW_COLUMNS, coordinates_of
from stratalog.control.objects.ledger import OBJECT_ID
from stratalog.control.objects.model import ObjectState
from stratalog.control.pipeline.model import DeadObject, DeadObjects, ObjectCursor
from stratalog.control.sql.database import Row, Rows, as_uuid
from stratalog.ids import ObjectId

_BEFORE_ALL = ObjectCursor(-1, ObjectId(UUID(int=0)))
# The state is spelled out, because an index of live objects serves no parameter. The time is asked
# for once, in a query of its own: PostgreSQL would compare it with every younger object otherwise.
_STEP = (
    "SELECT o.object_id, o.size_bytes, o.committed_ms, CASE WHEN o.stuck_ms > {now_ms} - $1"
    " THEN false ELSE COALESCE((SELECT SUM(b.byte_size) FROM batches b"
    " WHERE b.object_id = o.object_id) <= o.size_bytes * CAST($2 AS double precision), false) END"
    " FROM (SELECT object_id, size_bytes, committed_ms, stuck_ms FROM objects"
    f" WHERE state = '{ObjectState.LIVE.value}' AND committed_ms <= (SELECT {{now_ms}} - $3)"
    " AND (committed_ms, object_id) > ($4, $5) ORDER BY committed_ms, object_id LIMIT $6) o"
    " ORDER BY o.committed_ms, o.object_id"
)


class DeadObjectOperations(Ledger):
    async def mostly_dead_objects(
        self,
        *,
        older_than_ms: int,
        max_live_part: float,
        stuck_for_ms: int,
        limit: int,
        after: ObjectCursor | None = None,
    ) -> DeadObjects:
        """Of the next `limit` live objects after the cursor, the oldest first, those of which no
        more than this part is still referred to by rows. Those that were noted as stuck are left
        out for `stuck_for_ms`.

        What a call costs is bounded by the objects that it looks at, whatever it finds. An object
        that is committed behind the cursor meanwhile is found by the next walk from the start.
        """
        rows = await self._database.read(
            lambda connection: connection.fetch(
                _STEP,
                stuck_for_ms,
                max_live_part,
                older_than_ms,
                *(after or _BEFORE_ALL),
                limit,
            )
        )
        return DeadObjects(
            found=[_dead_object(row) for row in rows if row[3]],
            after=_cursor(rows[-1]) if len(rows) == limit else None,
        )

    async def note_stuck(self, ids: Sequence[ObjectId]) -> None:
        """Remember that what is alive in these objects could not be moved out of them now."""
        await self._database.write(
            lambda connection: connection.execute(
                "UPDATE objects SET stuck_ms = {now_ms}"
                " WHERE object_id IN (SELECT object_id FROM {rows})",
                rows=Rows(OBJECT_ID, [(object_id,) for object_id in sorted(set(ids))]),
            )
        )

    async def coordinates_in(self, ids: Sequence[ObjectId]) -> list[Coordinates]:
        """All rows that refer to these objects, by partition and offset. Rows that wait for their
        deletion are left out."""
        rows = await self._database.read(
            lambda connection: connection.fetch(
                f"SELECT {ROW_COLUMNS} FROM {{rows}} JOIN objects o ON o.object_id = r.object_id"
                " JOIN batches b ON b.object_id = o.object_id"
                " JOIN partitions p ON p.topic_id = b.topic_id AND p.partition = b.partition"
                " AND p.block_start <= b.last_offset"
                " JOIN topics t ON t.topic_id = b.topic_id AND t.deleted_ms IS NULL"
                " ORDER BY b.topic_id, b.partition, b.last_offset",
                rows=Rows(OBJECT_ID, [(object_id,) for object_id in sorted(set(ids))]),
            )
        )
        return [coordinates_of(row) for row in rows]


def _dead_object(row: Row) -> DeadObject:
    object_id, size_bytes, _, _ = row
    return DeadObject(ObjectId(as_uuid(object_id)), size_bytes)


def _cursor(row: Row) -> ObjectCursor:
    object_id, _, committed_ms, _ = row
    return ObjectCursor(committed_ms, ObjectId(as_uuid(object_id)))
