"""The offsets that groups have committed."""

from collections.abc import Sequence

from stratalog.control.groups.coordination import EMPTY, check_term
from stratalog.control.groups.model import CommittedOffset, GroupOffsets, LeftOut
from stratalog.control.keys import partition_key, partition_rows
from stratalog.control.ledger import Ledger
from stratalog.control.sql.database import Connection, Row, Rows, as_uuid, shape
from stratalog.ids import Offset, PartitionIndex, TopicId, TopicPartition

_GROUP = shape(group_id="text")
_OFFSET = shape(
    group_id="text",
    topic_id="uuid",
    partition="integer",
    committed_offset="bigint",
    leader_epoch="integer",
    metadata="bytea",
)
_COMMITTED = (
    "SELECT o.topic_id, o.partition, o.committed_offset, o.leader_epoch, o.metadata,"
    " o.committed_ms FROM group_offsets o"
    " JOIN topics t ON t.topic_id = o.topic_id AND t.deleted_ms IS NULL"
)
# Since when nobody has needed an offset. A group that never had members lives by its commits.
_EXPIRED = (
    "g.state_name = $1 AND COALESCE(g.empty_since_ms, 0) < {now_ms} - $2"
    " AND o.committed_ms < {now_ms} - $2"
)

_IDLE = (
    "g.changed_ms < {now_ms} - $2"
    " AND NOT EXISTS (SELECT 1 FROM group_offsets o WHERE o.group_id = g.group_id)"
)


class GroupOffsetOperations(Ledger):
    async def commit_offsets(self, commits: Sequence[GroupOffsets]) -> list[LeftOut | None]:
        """Store offsets of several groups in one transaction; None for those whose term is over.

        Offsets of topics that do not exist (any more) are left out, and that is told: who
        committed them may mean another topic of the same name.
        """

        async def work(connection: Connection) -> list[LeftOut | None]:
            terms = await _locked_terms(connection, {commit.group_id for commit in commits})
            valid = [terms.get(commit.group_id) == commit.term for commit in commits]
            unknown = await _write(
                connection,
                [commit for commit, good in zip(commits, valid, strict=True) if good],
            )
            return [
                frozenset(each.topic_partition for each in commit.offsets) & unknown
                if good
                else None
                for commit, good in zip(commits, valid, strict=True)
            ]

        return await self._database.write(work)

    async def offsets(
        self, group_id: str, wanted: Sequence[TopicPartition] | None
    ) -> list[CommittedOffset]:
        """The committed offsets of a group, of some partitions or of all."""

        async def work(connection: Connection) -> list[Row]:
            if wanted is None:
                return await connection.fetch(f"{_COMMITTED} WHERE o.group_id = $1", group_id)
            return await connection.fetch(
                f"{_COMMITTED} JOIN {{rows}} ON r.topic_id = o.topic_id"
                " AND r.partition = o.partition WHERE o.group_id = $1",
                group_id,
                rows=partition_rows(wanted),
            )

        rows = await self._database.read(work)
        return sorted(map(_committed, rows), key=lambda each: each.topic_partition)

    async def delete_offsets(
        self, group_id: str, term: int, partitions: Sequence[TopicPartition]
    ) -> None:
        async def work(connection: Connection) -> None:
            await check_term(connection, group_id, term)
            await connection.execute(
                "DELETE FROM group_offsets WHERE group_id = $1"
                " AND (topic_id, partition) IN (SELECT topic_id, partition FROM {rows})",
                group_id,
                rows=partition_rows(partitions),
            )

        await self._database.write(work)

    async def expire_offsets(self, *, retention_ms: int, max_rows: int) -> int:
        """Delete offsets of groups that have been empty for longer, and groups left with none."""

        async def work(connection: Connection) -> int:
            due = await _lock_expired(connection, retention_ms, max_rows)
            removed = await _delete_expired(connection, due, retention_ms, max_rows)
            await _delete_groups_left_empty(connection, retention_ms, max_rows)
            return removed

        return await self._database.write(work)


async def _locked_terms(connection: Connection, group_ids: set[str]) -> dict[str, int]:
    rows = await connection.fetch(
        "SELECT g.group_id, g.term FROM groups g"
        " WHERE g.group_id IN (SELECT group_id FROM {rows}) ORDER BY g.group_id {for_update}",
        rows=Rows(_GROUP, [(group_id,) for group_id in sorted(group_ids)]),
    )
    return {row[0]: row[1] for row in rows}


async def _write(connection: Connection, commits: Sequence[GroupOffsets]) -> LeftOut:
    """Of several commits of one partition the last wins: one statement may not do both."""
    values = {
        (commit.group_id, each.topic_id, each.partition): (
            each.offset,
            each.leader_epoch,
            each.metadata.encode(),
        )
        for commit in commits
        for each in commit.offsets
    }
    if not values:
        return frozenset()
    # A topic that is deleted at this moment may leave a row behind. Nobody sees it, because
    # reading joins the topics, and it goes with its group's offsets.
    written = await connection.execute(
        "INSERT INTO group_offsets (group_id, topic_id, partition, committed_offset,"
        " leader_epoch, metadata, committed_ms)"
        " SELECT r.group_id, r.topic_id, r.partition, r.committed_offset, r.leader_epoch,"
        " r.metadata, {now_ms} FROM {rows} JOIN topics t ON t.topic_id = r.topic_id"
        " WHERE t.deleted_ms IS NULL AND r.partition < t.partition_count"
        " ON CONFLICT (group_id, topic_id, partition) DO UPDATE SET"
        " committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch,"
        " metadata = excluded.metadata, committed_ms = excluded.committed_ms",
        # In key order, so that two transactions cannot wait for each other.
        rows=Rows(_OFFSET, [(*key, *values[key]) for key in sorted(values)]),
    )
    if written == len(values):
        return frozenset()
    return await _unknown(
        connection, {TopicPartition(topic_id, partition) for _, topic_id, partition in values}
    )


async def _unknown(connection: Connection, partitions: set[TopicPartition]) -> LeftOut:
    rows = await connection.fetch(
        "SELECT r.topic_id, r.partition FROM {rows} JOIN topics t ON t.topic_id = r.topic_id"
        " WHERE t.deleted_ms IS NULL AND r.partition < t.partition_count",
        rows=partition_rows(partitions),
    )
    return frozenset(partitions - {partition_key(row) for row in rows})


async def _lock_expired(connection: Connection, retention_ms: int, max_rows: int) -> list[str]:
    """Lock groups with offsets to expire: no commit may come between the look and the deletion."""
    rows = await connection.fetch(
        "SELECT g.group_id FROM groups g WHERE EXISTS (SELECT 1 FROM group_offsets o"
        f" WHERE o.group_id = g.group_id AND {_EXPIRED})"
        " ORDER BY g.group_id LIMIT $3 {for_update_skip_locked}",
        EMPTY,
        retention_ms,
        max_rows,
    )
    return [group_id for (group_id,) in rows]


async def _delete_expired(
    connection: Connection, group_ids: Sequence[str], retention_ms: int, max_rows: int
) -> int:
    return await connection.execute(
        "DELETE FROM group_offsets WHERE (group_id, topic_id, partition) IN"
        " (SELECT o.group_id, o.topic_id, o.partition FROM group_offsets o"
        " JOIN groups g ON g.group_id = o.group_id"
        f" WHERE o.group_id IN (SELECT group_id FROM {{rows}}) AND {_EXPIRED} LIMIT $3)",
        EMPTY,
        retention_ms,
        max_rows,
        rows=Rows(_GROUP, [(group_id,) for group_id in group_ids]),
    )


async def _delete_groups_left_empty(
    connection: Connection, retention_ms: int, max_rows: int
) -> None:
    idle = await connection.fetch(
        f"SELECT g.group_id FROM groups g WHERE g.state_name = $1 AND {_IDLE}"
        " LIMIT $3 {for_update_skip_locked}",
        EMPTY,
        retention_ms,
        max_rows,
    )
    # Asked again now that the rows are locked: a commit may have been faster.
    await connection.execute(
        "DELETE FROM groups WHERE group_id IN (SELECT group_id FROM {rows}) AND NOT EXISTS"
        " (SELECT 1 FROM group_offsets o WHERE o.group_id = groups.group_id)",
        rows=Rows(_GROUP, [(group_id,) for (group_id,) in idle]),
    )


def _committed(row: Row) -> CommittedOffset:
    topic_id, partition, offset, leader_epoch, metadata, committed_ms = row
    return CommittedOffset(
        topic_id=TopicId(as_uuid(topic_id)),
        partition=PartitionIndex(partition),
        offset=Offset(offset),
        leader_epoch=leader_epoch,
        metadata=bytes(metadata).decode(),
        committed_ms=committed_ms,
    )
