"""Mostly dead objects, and the rows that still refer to them.

Most live objects are not dead, and only all rows of an object show if it is. So the search goes
through them in steps of a given number of objects, in the order of an index, and no statement looks
at more.
"""

from collections.abc import Sequence
from uuid import UUID

from stratalog.control.ledger import Ledger
from stratalog.control.log.model import COORDINATES, Coordinates
from stratalog.control.objects.model import OBJECT_ID, ObjectState
from stratalog.control.pipeline.model import DeadObject, DeadObjects, ObjectCursor
from stratalog.control.sql.database import Row, Rows, as_uuid
from stratalog.ids import ObjectId

_BEFORE_ALL = ObjectCursor(-1, ObjectId(UUID(int=0)))
# The state is spelled out, because an index of live objects serves no parameter. The time is asked
# for once, in a query of its own: PostgreSQL would compare it with every younger object otherwise.
_STEP = f"""
    SELECT objects.object_id, objects.size_bytes, objects.committed_ms,
        CASE WHEN objects.stuck_ms > {{now_ms}} - $1 THEN false ELSE COALESCE(
            (SELECT SUM(byte_size) FROM batches WHERE batches.object_id = objects.object_id)
                <= objects.size_bytes * CAST($2 AS double precision),
            false
        ) END
    FROM (
        SELECT object_id, size_bytes, committed_ms, stuck_ms FROM objects
        WHERE state = '{ObjectState.LIVE.value}' AND committed_ms <= (SELECT {{now_ms}} - $3)
            AND (committed_ms, object_id) > ($4, $5)
        ORDER BY committed_ms, object_id LIMIT $6
    ) AS objects
    ORDER BY objects.committed_ms, objects.object_id
"""
_ROWS = f"""
    SELECT {COORDINATES.columns} FROM {{rows}}
    JOIN objects ON objects.object_id = r.object_id
    JOIN batches ON batches.object_id = objects.object_id
    JOIN partitions ON partitions.topic_id = batches.topic_id
        AND partitions.partition = batches.partition
        AND partitions.block_start <= batches.last_offset
    JOIN topics ON topics.topic_id = batches.topic_id AND topics.deleted_ms IS NULL
    ORDER BY batches.topic_id, batches.partition, batches.last_offset
"""


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
        """Look at the next `limit` live objects after the cursor, the oldest first, and return the
        ones of which rows refer to no more than this part. Objects that were noted as stuck are
        left out for `stuck_for_ms`.

        The cost of a call is bounded by the objects that it looks at, whatever it finds. An object
        that is committed behind the cursor meanwhile is found by the next search from the start.
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
        """Remember that the live rows of these objects could not be moved out of them now."""
        await self._database.write(
            lambda connection: connection.execute(
                "UPDATE objects SET stuck_ms = {now_ms}"
                " WHERE object_id IN (SELECT object_id FROM {rows})",
                rows=Rows(OBJECT_ID, [(object_id,) for object_id in sorted(set(ids))]),
            )
        )

    async def coordinates_in(self, ids: Sequence[ObjectId]) -> list[Coordinates]:
        """Return all rows that refer to these objects, by partition and offset. Rows that wait for
        their deletion are left out."""
        rows = await self._database.read(
            lambda connection: connection.fetch(
                _ROWS,
                rows=Rows(OBJECT_ID, [(object_id,) for object_id in sorted(set(ids))]),
            )
        )
        return COORDINATES.read_all(rows)


def _dead_object(row: Row) -> DeadObject:
    object_id, size_bytes, _, _ = row
    return DeadObject(ObjectId(as_uuid(object_id)), size_bytes)


def _cursor(row: Row) -> ObjectCursor:
    object_id, _, committed_ms, _ = row
    return ObjectCursor(committed_ms, ObjectId(as_uuid(object_id)))
