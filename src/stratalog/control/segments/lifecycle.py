"""Segments from the note that one will be uploaded to the end of their deletion.

How one becomes a part of its partition is in `chain.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from uuid import UUID

from stratalog.control.ledger import Ledger
from stratalog.control.scans.leases import MARK_MS
from stratalog.control.segments.errors import SegmentStateError
from stratalog.control.segments.model import (
    SEGMENT,
    SEGMENT_ID,
    SEGMENTS,
    EpochStart,
    Segment,
    SegmentState,
    SegmentToAdd,
    SegmentToBar,
    SegmentUploaded,
)
from stratalog.control.sql.database import Connection, Database, Row, Rows, as_uuid
from stratalog.control.sql.shared_writes import SharedWrites
from stratalog.control.sql.table import rows_from
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.ids import (
    NO_OFFSET,
    Entropy,
    LeaderEpoch,
    Offset,
    SegmentId,
    TopicId,
    TopicPartition,
    kafka_base64,
)

_BEFORE_ALL = UUID(int=0)
_UPLOADED = ("manifest", "stored_bytes", "has_aborted", "custom_metadata")
ADDED = SEGMENTS.shape_without(*_UPLOADED, "state", "chained", "owned", "added_ms", "changed_ms")
"""The columns of a segment before its upload."""
_INSERT = SEGMENTS.insert(
    ADDED,
    state="$1",
    chained="false",
    owned="true",
    added_ms="{now_ms}",
    changed_ms="{now_ms}",
)
_TOMBSTONE = SEGMENTS.shape("segment_id", "topic_id", "partition", "base_offset", "key_base")
_INSERT_TOMBSTONES = SEGMENTS.insert(
    _TOMBSTONE,
    last_offset="r.base_offset",
    size_bytes="0",
    max_timestamp="-1",
    leader_epochs="'[]'",
    store_url="''",
    broker_id="-1",
    state="$1",
    chained="false",
    owned="true",
    added_ms="{now_ms}",
    changed_ms="{now_ms}",
)

_SELECT = f"SELECT {SEGMENT.columns} FROM segments"
_CHAINED = f"""
    {_SELECT} JOIN topics ON topics.topic_id = segments.topic_id AND topics.deleted_ms IS NULL
    WHERE segments.chained AND segments.topic_id = $1 AND segments.partition = $2
"""
_DOOMED = f"""
    {_SELECT}
    WHERE NOT chained AND state = $1
        AND changed_ms <= {{now_ms}} - CASE
            WHEN manifest IS NULL THEN CAST($2 AS bigint) ELSE CAST($3 AS bigint)
        END
        AND changed_ms < COALESCE(
            (SELECT MIN(started_ms) FROM leases WHERE expires_ms > {{now_ms}}), changed_ms + 1
        )
        AND (changed_ms, segment_id) > ($4, $5)
    ORDER BY changed_ms, segment_id LIMIT $6
"""
_UNCHAINED = f"""
    {_SELECT}
    WHERE NOT chained AND state <> $1 AND added_ms <= {{now_ms}} - $2
    ORDER BY added_ms, segment_id LIMIT $3
"""
_FINISH = """
    UPDATE segments
    SET state = $1, changed_ms = {now_ms}, manifest = $2, stored_bytes = $3, has_aborted = $4,
        custom_metadata = $5
    WHERE segment_id = $6 AND state IN ($7, $1) AND (NOT chained OR manifest = $2)
"""
_REPLACE_UPLOAD = """
    UPDATE segments
    SET manifest = $1, stored_bytes = $2, has_aborted = $3, custom_metadata = $4
    WHERE segment_id = $5 AND state = $6 AND owned
"""
_BEGIN_DELETION = f"""
    UPDATE segments SET state = $1, changed_ms = {MARK_MS} FROM {{rows}}
    WHERE segments.segment_id = r.segment_id AND NOT segments.chained AND segments.state <> $1
"""


class SegmentOperations(Ledger):
    def __init__(self, database: Database, entropy: Entropy) -> None:
        super().__init__(database, entropy)
        self._shared_writes = SharedWrites(database)

    async def add(self, segment: SegmentToAdd) -> None:
        """Note that a segment is about to be uploaded. The same one may be added again.

        Raises `SegmentStateError` if its deletion has begun, or the sweeper has barred its id.
        """
        await self._shared_writes.write(segment.segment_id, partial(_add, segment=segment))

    async def bar(self, segments: Mapping[SegmentId, SegmentToBar]) -> set[SegmentId]:
        """Put tombstones under the ids that have no row; return which.

        A tombstone is a segment whose deletion has begun: `add` is refused, and `doomed` hands out
        its keys. With its objects gone it is forgotten like any other, so a caller that adds a
        segment after its upload looks for the objects once more.
        """
        rows = await self._database.write(partial(_bar, segments=segments))
        return {SegmentId(as_uuid(row[0])) for row in rows}

    async def finish(self, segment_id: SegmentId, uploaded: SegmentUploaded) -> None:
        """Note that all objects of the segment are in the store. May be repeated.

        Raises `SegmentStateError` if its deletion has begun, or nothing is known of it (any more).
        """
        finished = await self._shared_writes.write(
            segment_id,
            lambda connection: connection.execute(
                _FINISH,
                SegmentState.COPY_FINISHED.value,
                uploaded.manifest,
                uploaded.stored_bytes,
                uploaded.has_aborted,
                uploaded.custom_metadata,
                segment_id,
                SegmentState.COPY_STARTED.value,
            ),
        )
        if not finished:
            raise SegmentStateError(
                f"segment {segment_id} cannot be finished: its deletion has begun, or nothing is"
                " known of it, or it is chained with another manifest: build another"
            )

    async def replace_upload(self, segment_id: SegmentId, uploaded: SegmentUploaded) -> None:
        """Note that objects of a finished segment of ours were put again, for a repair.

        Raises `SegmentStateError` if it is not finished, belongs to another cluster, or its
        deletion has begun.
        """
        replaced = await self._database.write(
            lambda connection: connection.execute(
                _REPLACE_UPLOAD,
                uploaded.manifest,
                uploaded.stored_bytes,
                uploaded.has_aborted,
                uploaded.custom_metadata,
                segment_id,
                SegmentState.COPY_FINISHED.value,
            )
        )
        if not replaced:
            raise SegmentStateError(
                f"segment {segment_id} cannot be uploaded again: it is not finished, not ours, or"
                " its deletion has begun"
            )

    async def delete(self, ids: Sequence[SegmentId]) -> None:
        """Begin the deletion of segments that are not chained. Chained ones are left alone."""
        await self._database.write(lambda connection: begin_deletion(connection, ids))

    async def doomed(
        self, *, grace_ms: int, window_ms: int = 0, limit: int, after: Segment | None = None
    ) -> list[Segment]:
        """Segments whose deletion began longer ago than the grace period, and before every live
        lease began. Finished ones are left out for `window_ms` more. Oldest first, from the one
        after `after` on."""
        return await self._fetch(
            _DOOMED,
            SegmentState.DELETE_STARTED.value,
            grace_ms,
            grace_ms + window_ms,
            -1 if after is None else after.changed_ms,
            _BEFORE_ALL if after is None else after.segment_id,
            limit,
        )

    async def forget(self, ids: Sequence[SegmentId]) -> None:
        """Finish the deletion of segments whose objects are gone from the store."""
        await self._database.write(
            lambda connection: connection.execute(
                "DELETE FROM segments WHERE state = $1"
                " AND segment_id IN (SELECT segment_id FROM {rows})",
                SegmentState.DELETE_STARTED.value,
                rows=_id_rows(ids),
            )
        )

    async def unchained(self, *, older_than_ms: int, limit: int) -> list[Segment]:
        """Segments that were added so long ago and are neither chained nor being deleted."""
        return await self._fetch(
            _UNCHAINED,
            SegmentState.DELETE_STARTED.value,
            older_than_ms,
            limit,
        )

    async def chained(
        self, partition: TopicPartition, *, after: Offset | None = None, limit: int
    ) -> list[Segment]:
        """The chained segments of a partition that end after `after`, in offset order."""
        return await self._fetch(
            f"{_CHAINED} AND segments.last_offset > $3 ORDER BY segments.last_offset LIMIT $4",
            *partition,
            NO_OFFSET if after is None else after,
            limit,
        )

    async def all(self, *, after: SegmentId | None = None, limit: int) -> list[Segment]:
        """Return every segment that has a row, whatever its state, in id order."""
        return await self._fetch(
            f"{_SELECT} WHERE segment_id > $1 ORDER BY segment_id LIMIT $2",
            after or _BEFORE_ALL,
            limit,
        )

    async def known(self, ids: Sequence[SegmentId]) -> set[SegmentId]:
        """Return the ids that have a row, whatever its state. Ids are never used again."""
        rows = await self._database.read(
            lambda connection: connection.fetch(
                "SELECT segments.segment_id FROM {rows}"
                " JOIN segments ON segments.segment_id = r.segment_id",
                rows=_id_rows(sorted(set(ids))),
            )
        )
        return {SegmentId(as_uuid(row[0])) for row in rows}

    async def find(
        self, partition: TopicPartition, epoch: LeaderEpoch, offset: Offset
    ) -> Segment | None:
        """The chained segment that holds this offset, if it was written in this epoch."""
        found = await self._fetch(
            f"{_CHAINED} AND segments.last_offset >= $3 ORDER BY segments.last_offset LIMIT 1",
            *partition,
            offset,
        )
        for segment in found:
            if segment.base_offset <= offset and epoch_at(segment.leader_epochs, offset) == epoch:
                return segment
        return None

    async def own(self, topic_id: TopicId) -> int:
        """Take ownership of a topic's adopted segments: from now on their objects are deleted
        when they expire. Return how many there were."""

        async def work(connection: Connection) -> int:
            topics = await connection.fetch(
                "SELECT 1 FROM topics WHERE topic_id = $1 AND deleted_ms IS NULL", topic_id
            )
            if not topics:
                raise UnknownTopicError(f"no topic has the id {kafka_base64(topic_id)}")
            return await connection.execute(
                "UPDATE segments SET owned = true WHERE topic_id = $1 AND NOT owned", topic_id
            )

        return await self._database.write(work)

    async def _fetch(self, sql: str, *args: object) -> list[Segment]:
        rows: list[Row] = await self._database.read(lambda connection: connection.fetch(sql, *args))
        return SEGMENT.read_all(rows)


def epoch_at(epochs: Sequence[EpochStart], offset: Offset) -> LeaderEpoch | None:
    """Return the epoch of the offset. Of entries with the same start, the last counts."""
    return next((epoch for epoch, start in reversed(epochs) if start <= offset), None)


async def read_segment(connection: Connection, segment_id: SegmentId) -> Segment | None:
    rows = await connection.fetch(f"{_SELECT} WHERE segment_id = $1", segment_id)
    return SEGMENT.read(rows[0]) if rows else None


async def begin_deletion(connection: Connection, ids: Iterable[SegmentId]) -> int:
    """Begin the deletion of segments that are not chained; return their number.

    Objects of another cluster are not deleted, so their segments are forgotten at once. The lease
    lock makes a lease either older than the deletion, or blind to the segment.
    """
    source = _id_rows(sorted(set(ids)))
    await connection.lock("leases", shared=True)
    # First, so that the second statement finds a segment whose ownership is just being taken.
    forgotten = await connection.execute(
        "DELETE FROM segments WHERE NOT chained AND NOT owned"
        " AND segment_id IN (SELECT segment_id FROM {rows})",
        rows=source,
    )
    begun = await connection.execute(
        _BEGIN_DELETION,
        SegmentState.DELETE_STARTED.value,
        rows=source,
    )
    return forgotten + begun


async def _add(connection: Connection, segment: SegmentToAdd) -> None:
    inserted = await connection.execute(
        f"{_INSERT} ON CONFLICT (segment_id) DO NOTHING",
        SegmentState.COPY_STARTED.value,
        rows=rows_from(ADDED, [segment], leader_epochs="epochs_json"),
    )
    if not inserted:
        _check_same(segment, await read_segment(connection, segment.segment_id))


async def _bar(connection: Connection, segments: Mapping[SegmentId, SegmentToBar]) -> list[Row]:
    """Take the ids that are free. An id that is just being added is waited for."""
    tombstones = [
        (segment_id, each.topic_id, each.partition, each.base_offset, each.key_base)
        for segment_id, each in sorted(segments.items())
    ]
    return await connection.fetch(
        f"{_INSERT_TOMBSTONES} ON CONFLICT (segment_id) DO NOTHING RETURNING segment_id",
        SegmentState.DELETE_STARTED.value,
        rows=Rows(_TOMBSTONE, tombstones),
    )


def _check_same(segment: SegmentToAdd, known: Segment | None) -> None:
    if known is None or known.state is SegmentState.DELETE_STARTED:
        raise SegmentStateError(f"segment {segment.segment_id} was deleted: build another")
    if _as_added(segment) != _as_added(known):
        raise SegmentStateError(
            f"segment {segment.segment_id} is known as {known.key_base} with offsets"
            f" {known.base_offset} to {known.last_offset}: give this one another id"
        )


def _as_added(segment: SegmentToAdd) -> SegmentToAdd:
    values = {each.name: getattr(segment, each.name) for each in fields(SegmentToAdd)}
    return SegmentToAdd(**values | {"leader_epochs": tuple(segment.leader_epochs)})


def _id_rows(ids: Iterable[SegmentId]) -> Rows:
    return Rows(SEGMENT_ID, [(segment_id,) for segment_id in ids])
