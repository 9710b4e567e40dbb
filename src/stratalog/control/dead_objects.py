"""Objects of which little is still needed, and what that is."""

from collections.abc import Sequence
from uuid import UUID

from stratalog.control.database import Row, Rows, as_uuid
from stratalog.control.model import Coordinates
from stratalog.control.objects import OBJECT_ID, ObjectState
from stratalog.control.operations import Operations
from stratalog.control.pipeline_model import DeadObject
from stratalog.control.reads import ROW_COLUMNS, coordinates_of
from stratalog.ids import ObjectId

_BEFORE_ALL = DeadObject(ObjectId(UUID(int=0)), size_bytes=0, committed_ms=-1)


class DeadObjectOperations(Operations):
    async def mostly_dead_objects(
        self,
        *,
        older_than_ms: int,
        max_live_part: float,
        stuck_for_ms: int,
        limit: int,
        after: DeadObject | None = None,
    ) -> list[DeadObject]:
        last = after or _BEFORE_ALL
        rows = await self._database.read(
            lambda connection: connection.fetch(
                "SELECT o.object_id, o.size_bytes, o.committed_ms FROM objects o"
                " WHERE o.state = $1 AND o.committed_ms <= {now_ms} - $2"
                " AND (o.stuck_ms IS NULL OR o.stuck_ms <= {now_ms} - $5)"
                " AND (o.committed_ms, o.object_id) > ($6, $7)"
                " AND (SELECT SUM(b.byte_size) FROM batches b WHERE b.object_id = o.object_id)"
                " <= o.size_bytes * CAST($3 AS double precision)"
                " ORDER BY o.committed_ms, o.object_id LIMIT $4",
                ObjectState.LIVE.value,
                older_than_ms,
                max_live_part,
                limit,
                stuck_for_ms,
                last.committed_ms,
                last.object_id,
            )
        )
        return [_dead_object(row) for row in rows]

    async def note_stuck(self, ids: Sequence[ObjectId]) -> None:
        await self._database.write(
            lambda connection: connection.execute(
                "UPDATE objects SET stuck_ms = {now_ms}"
                " WHERE object_id IN (SELECT object_id FROM {rows})",
                rows=Rows(OBJECT_ID, [(object_id,) for object_id in sorted(set(ids))]),
            )
        )

    async def coordinates_in(self, ids: Sequence[ObjectId]) -> list[Coordinates]:
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
    object_id, size_bytes, committed_ms = row
    return DeadObject(ObjectId(as_uuid(object_id)), size_bytes, committed_ms)
