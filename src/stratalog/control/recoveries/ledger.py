"""Recoveries: the rows that a search of the store adds to the control plane, in one transaction.

No broker works meanwhile, because the cluster is halted. One transaction, so that a crash leaves
the control plane as it was, and the recovery finds the same objects again as unknown.
"""

from collections.abc import Sequence
from functools import partial
from uuid import UUID

from stratalog.control.ledger import Ledger
from stratalog.control.log.model import BATCHES, EPOCHS, HEADS, PARTITIONS
from stratalog.control.log.producers import write_producers
from stratalog.control.objects.ledger import mark_unreferenced
from stratalog.control.objects.model import OBJECTS, ObjectState
from stratalog.control.recoveries.load import finish_recovery, insert_recovery
from stratalog.control.recoveries.model import (
    RECOVERIES,
    RECOVERY,
    Changes,
    RecoveredObject,
    RecoveredPartition,
    RecoveredTopic,
    Recovery,
)
from stratalog.control.segments.model import SEGMENTS, SegmentState
from stratalog.control.sql.database import Connection, Rows, as_uuid
from stratalog.control.sql.table import rows_from
from stratalog.control.topics.model import TOPICS
from stratalog.ids import ObjectId, SegmentId, new_uuid

_TOPIC = TOPICS.shape("topic_id", "name", "partition_count")
_INSERT_TOPIC = f"""
    {TOPICS.insert(_TOPIC, configs="'{}'", created_ms="{now_ms}")}
    ON CONFLICT (topic_id)
    DO UPDATE SET name = excluded.name, partition_count = excluded.partition_count
"""
_PLACE = PARTITIONS.shape("topic_id", "partition")
_INSERT_PARTITIONS = f"""
    {
    PARTITIONS.insert(_PLACE, log_start="0", remote_end="0", block_start="0", write_tier="'block'")
} ON CONFLICT (topic_id, partition) DO NOTHING
"""
_INSERT_HEADS = f"""
    {
    HEADS.insert(_PLACE, high_watermark="0", size_bytes="0", last_commit_ms="0", leader_epoch="0")
} ON CONFLICT (topic_id, partition) DO NOTHING
"""
_EPOCH = EPOCHS.shape("topic_id", "partition", "leader_epoch", "start_offset")
_INSERT_EPOCHS = f"""
    {EPOCHS.insert(_EPOCH)} ON CONFLICT (topic_id, partition, leader_epoch) DO NOTHING
"""
_OBJECT = OBJECTS.shape("object_id", "key", "kind", "state", "size_bytes", "committed_ms")
_INSERT_OBJECTS = f"""
    {
    OBJECTS.insert(
        _OBJECT,
        broker_id="-1",
        marked_ms=f"CASE WHEN r.state = '{ObjectState.MARKED.value}' THEN {{now_ms}} END",
    )
} ON CONFLICT (object_id) DO NOTHING
"""
_ROW = BATCHES.shape_without()
_ROW_KEY = BATCHES.shape("topic_id", "partition", "last_offset")
_DELETE_ROWS = """
    DELETE FROM batches WHERE (topic_id, partition, last_offset) IN (
        SELECT topic_id, partition, last_offset FROM {rows}
    )
"""
_SEGMENT = SEGMENTS.shape(
    "segment_id", "topic_id", "partition", "base_offset", "last_offset", "size_bytes",
    "max_timestamp", "leader_epochs", "key_base", "manifest", "stored_bytes", "has_aborted",
)  # fmt: skip
_INSERT_SEGMENTS = SEGMENTS.insert(
    _SEGMENT,
    store_url="''",
    broker_id="-1",
    state=f"{SegmentState.COPY_FINISHED:d}",
    chained="true",
    owned="true",
    added_ms="{now_ms}",
    changed_ms="{now_ms}",
)
_MOVED = PARTITIONS.shape("topic_id", "partition", "log_start", "remote_end", "block_start")
_MOVE = """
    UPDATE partitions SET log_start = r.log_start, remote_end = r.remote_end,
        block_start = r.block_start
    FROM {rows} WHERE partitions.topic_id = r.topic_id AND partitions.partition = r.partition
"""
_HEAD = HEADS.shape("topic_id", "partition", "high_watermark", "last_commit_ms", "leader_epoch")
_MOVE_HEADS = """
    UPDATE heads SET high_watermark = r.high_watermark, last_commit_ms = r.last_commit_ms,
        leader_epoch = r.leader_epoch
    FROM {rows} WHERE heads.topic_id = r.topic_id AND heads.partition = r.partition
"""
_COUNT_BYTES = """
    UPDATE heads SET size_bytes = COALESCE(
        (SELECT SUM(segments.size_bytes) FROM segments WHERE segments.chained
            AND segments.topic_id = r.topic_id AND segments.partition = r.partition), 0
    ) + COALESCE(
        (SELECT SUM(batches.byte_size) FROM batches JOIN partitions
            ON partitions.topic_id = batches.topic_id AND partitions.partition = batches.partition
            WHERE batches.topic_id = r.topic_id AND batches.partition = r.partition
            AND batches.last_offset >= partitions.block_start), 0
    )
    FROM {rows} WHERE heads.topic_id = r.topic_id AND heads.partition = r.partition
"""


class RecoveriesLedger(Ledger):
    async def unfinished(self) -> Recovery | None:
        """Return the recovery that was begun and not finished, if there is one."""
        rows = await self._database.read(
            lambda connection: connection.fetch(
                f"SELECT {RECOVERY.columns} FROM recoveries WHERE finished_ms IS NULL"
                " ORDER BY begun_ms DESC LIMIT 1"
            )
        )
        return RECOVERY.read(rows[0]) if rows else None

    async def all(self) -> list[Recovery]:
        rows = await self._database.read(
            lambda connection: connection.fetch(
                f"SELECT {RECOVERY.columns} FROM {RECOVERIES.name} ORDER BY begun_ms"
            )
        )
        return RECOVERY.read_all(rows)

    async def finish(self, recovery_id: UUID, report: str) -> None:
        await self._database.write(
            lambda connection: finish_recovery(connection, recovery_id, report)
        )

    async def begin(self, ground: str) -> Recovery:
        """Note that a recovery begins, or return the one that is begun and not finished."""
        begun = await self.unfinished()
        if begun is not None:
            return begun
        recovery = Recovery(
            recovery_id=new_uuid(self._entropy),
            ground=ground,
            begun_ms=0,
            finished_ms=None,
            report=None,
        )
        await self._database.write(lambda connection: insert_recovery(connection, recovery))
        return recovery

    async def known_objects(self) -> set[ObjectId]:
        """Return the ids of all objects that have a row, whatever its state."""
        rows = await self._database.read(
            lambda connection: connection.fetch("SELECT object_id FROM objects")
        )
        return {ObjectId(as_uuid(row[0])) for row in rows}

    async def known_segments(self) -> set[SegmentId]:
        rows = await self._database.read(
            lambda connection: connection.fetch("SELECT segment_id FROM segments")
        )
        return {SegmentId(as_uuid(row[0])) for row in rows}

    async def deleted_topics(self) -> set[UUID]:
        """Return the ids of topics that were deleted and have rows still."""
        rows = await self._database.read(
            lambda connection: connection.fetch(
                "SELECT topic_id FROM topics WHERE deleted_ms IS NOT NULL"
            )
        )
        return {as_uuid(row[0]) for row in rows}

    async def apply(self, changes: Changes) -> None:
        """Add everything that was recovered. Applying the same changes twice is refused by keys."""
        await self._database.write(partial(_apply, changes=changes))


async def _apply(connection: Connection, changes: Changes) -> None:
    await connection.lock("restore")
    # Runs of the pipeline that the backup knows have ended, and their plans are out of date.
    await connection.execute("UPDATE claims SET expires_ms = 0 WHERE token IS NOT NULL")
    for topic in changes.topics:
        await _add_topic(connection, topic)
    await _add_objects(connection, changes.objects)
    for partition in changes.partitions:
        await _change_partition(connection, partition)
    places = Rows(_PLACE, [partition.key for partition in changes.partitions])
    await connection.execute(_COUNT_BYTES, rows=places)
    removed = {row.object_id for each in changes.partitions for row in each.removed_rows}
    await mark_unreferenced(connection, removed)


async def _add_topic(connection: Connection, topic: RecoveredTopic) -> None:
    count = topic.partition_count
    await connection.execute(
        _INSERT_TOPIC, rows=Rows(_TOPIC, [(topic.topic_id, topic.name, count)])
    )
    places = [(topic.topic_id, index) for index in range(count)]
    await connection.execute(_INSERT_PARTITIONS, rows=Rows(_PLACE, places))
    await connection.execute(_INSERT_HEADS, rows=Rows(_PLACE, places))
    epochs = [(*place, 0, 0) for place in places]
    await connection.execute(_INSERT_EPOCHS, rows=Rows(_EPOCH, epochs))


async def _add_objects(connection: Connection, objects: Sequence[RecoveredObject]) -> None:
    values = [
        (each.object_id, each.key, each.kind.value, each.state.value, each.size_bytes,
         each.created_ms)
        for each in objects
    ]  # fmt: skip
    await connection.execute(_INSERT_OBJECTS, rows=Rows(_OBJECT, values))


async def _change_partition(connection: Connection, change: RecoveredPartition) -> None:
    key = change.key
    await connection.execute(_DELETE_ROWS, rows=rows_from(_ROW_KEY, change.removed_rows))
    await connection.execute(BATCHES.insert(_ROW), rows=rows_from(_ROW, change.new_rows))
    segments = [
        (added.segment_id, *key, added.base_offset, added.last_offset, added.size_bytes,
         added.max_timestamp, added.epochs_json, added.key_base, uploaded.manifest,
         uploaded.stored_bytes, uploaded.has_aborted)
        for added, uploaded in change.segments
    ]  # fmt: skip
    await connection.execute(_INSERT_SEGMENTS, rows=Rows(_SEGMENT, segments))
    boundaries = (*key, change.log_start, change.remote_end, change.block_start)
    await connection.execute(_MOVE, rows=Rows(_MOVED, [boundaries]))
    head = (*key, change.high_watermark, change.last_commit_ms, change.leader_epoch)
    await connection.execute(_MOVE_HEADS, rows=Rows(_HEAD, [head]))
    epochs = [(*key, epoch, start) for epoch, start in change.epochs]
    await connection.execute(_INSERT_EPOCHS, rows=Rows(_EPOCH, epochs))
    if change.forget_producers:
        await connection.execute(
            "DELETE FROM producers WHERE topic_id = $1 AND partition = $2", *key
        )
    states = {(key, producer): state for producer, state in change.producers.items()}
    await write_producers(connection, states)
