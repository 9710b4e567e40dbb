"""Objects of which little is still needed, and what that is."""

from collections.abc import Sequence

from stratalog.control.database import Rows, as_uuid
from stratalog.control.model import Coordinates
from stratalog.control.objects import OBJECT_ID, ObjectState
from stratalog.control.operations import Operations
from stratalog.control.reads import ROW_COLUMNS, coordinates_of
from stratalog.ids import ObjectId


class DeadObjectOperations(Operations):
    async def mostly_dead_objects(
        self, *, older_than_ms: int, max_live_part: float, limit: int
    ) -> list[ObjectId]:
        rows = await self._database.read(
            lambda connection: connection.fetch(
                "SELECT o.object_id FROM objects o WHERE o.state = $1"
                " AND o.committed_ms <= {now_ms} - $2"
                " AND (SELECT SUM(b.byte_size) FROM batches b WHERE b.object_id = o.object_id)"
                " <= o.size_bytes * CAST($3 AS double precision)"
                " ORDER BY o.committed_ms, o.object_id LIMIT $4",
                ObjectState.LIVE.value,
                older_than_ms,
                max_live_part,
                limit,
            )
        )
        return [ObjectId(as_uuid(row[0])) for row in rows]

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
