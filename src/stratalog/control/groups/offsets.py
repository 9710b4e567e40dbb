"""The offsets that groups have committed."""

from collections.abc import Sequence

from stratalog.control.groups.coordination import EMPTY, check_term
from stratalog.control.groups.model import (
    COMMITTED_OFFSET,
    GROUP_OFFSETS,
    GROUPS,
    CommittedOffset,
    GroupOffsets,
    LeftOut,
)
from stratalog.control.keys import partition_key, partition_rows
from stratalog.control.ledger import Ledger
from stratalog.control.sql.database import Connection, Row, Rows
from stratalog.ids import TopicPartition

_GROUP = GROUPS.shape("group_id")
_OFFSET = GROUP_OFFSETS.shape_without("committed_ms")
_COMMITTED = f"""
    SELECT {COMMITTED_OFFSET.columns} FROM group_offsets
    JOIN topics ON topics.topic_id = group_offsets.topic_id AND topics.deleted_ms IS NULL
"""
_OF_PARTITIONS = f"""
    {_COMMITTED}
    JOIN {{rows}} ON r.topic_id = group_offsets.topic_id AND r.partition = group_offsets.partition
    WHERE group_offsets.group_id = $1
"""
_KNOWN = "topics.deleted_ms IS NULL AND r.partition < topics.partition_count"
_WRITE = f"""
    INSERT INTO group_offsets ({", ".join(_OFFSET.names)}, committed_ms)
    SELECT {", ".join(f"r.{name}" for name in _OFFSET.names)}, {{now_ms}}
    FROM {{rows}} JOIN topics ON topics.topic_id = r.topic_id
    WHERE {_KNOWN}
    ON CONFLICT (group_id, topic_id, partition) DO UPDATE SET
        {GROUP_OFFSETS.overwrite("committed_offset", "leader_epoch", "metadata", "committed_ms")}
"""
_KNOWN_PARTITIONS = f"""
    SELECT r.topic_id, r.partition FROM {{rows}} JOIN topics ON topics.topic_id = r.topic_id
    WHERE {_KNOWN}
"""
# A group without members needs no offsets from then on. A group that never had members lives by its
# commits.
_EXPIRED = """
    groups.state_name = $1 AND COALESCE(groups.empty_since_ms, 0) < {now_ms} - $2
    AND group_offsets.committed_ms < {now_ms} - $2
"""
_LOCK_EXPIRED = f"""
    SELECT groups.group_id FROM groups
    WHERE EXISTS (
        SELECT 1 FROM group_offsets
        WHERE group_offsets.group_id = groups.group_id AND {_EXPIRED}
    )
    ORDER BY groups.group_id LIMIT $3 {{for_update_skip_locked}}
"""
_DELETE_EXPIRED = f"""
    DELETE FROM group_offsets WHERE (group_id, topic_id, partition) IN (
        SELECT group_offsets.group_id, group_offsets.topic_id, group_offsets.partition
        FROM group_offsets JOIN groups ON groups.group_id = group_offsets.group_id
        WHERE group_offsets.group_id IN (SELECT group_id FROM {{rows}}) AND {_EXPIRED} LIMIT $3
    )
"""
_WITHOUT_OFFSETS = """
    NOT EXISTS (SELECT 1 FROM group_offsets WHERE group_offsets.group_id = groups.group_id)
"""
_LOCK_IDLE = f"""
    SELECT groups.group_id FROM groups
    WHERE groups.state_name = $1 AND groups.changed_ms < {{now_ms}} - $2 AND {_WITHOUT_OFFSETS}
    LIMIT $3 {{for_update_skip_locked}}
"""
_DELETE_IDLE = f"""
    DELETE FROM groups
    WHERE group_id IN (SELECT group_id FROM {{rows}}) AND {_WITHOUT_OFFSETS}
"""


class GroupOffsetOperations(Ledger):
    async def commit_offsets(self, commits: Sequence[GroupOffsets]) -> list[LeftOut | None]:
        """Store offsets of several groups in one transaction; None for a group whose term is over.

        Offsets of topics that do not exist (any more) are left out, and the answer names them: the
        client that committed them may mean another topic of the same name.
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
        """Return the committed offsets of a group, of some partitions or of all."""

        async def work(connection: Connection) -> list[Row]:
            if wanted is None:
                return await connection.fetch(
                    f"{_COMMITTED} WHERE group_offsets.group_id = $1", group_id
                )
            return await connection.fetch(_OF_PARTITIONS, group_id, rows=partition_rows(wanted))

        rows = await self._database.read(work)
        return sorted(map(COMMITTED_OFFSET.read, rows), key=lambda each: each.topic_partition)

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
        "SELECT group_id, term FROM groups"
        " WHERE group_id IN (SELECT group_id FROM {rows}) ORDER BY group_id {for_update}",
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
    # A topic that is deleted at this moment may leave a row behind. No read sees the row, because
    # reading joins the topics, and it goes with its group's offsets.
    written = await connection.execute(
        _WRITE,
        # In key order, so that two transactions cannot wait for each other.
        rows=Rows(_OFFSET, [(*key, *values[key]) for key in sorted(values)]),
    )
    if written == len(values):
        return frozenset()
    return await _unknown(
        connection, {TopicPartition(topic_id, partition) for _, topic_id, partition in values}
    )


async def _unknown(connection: Connection, partitions: set[TopicPartition]) -> LeftOut:
    rows = await connection.fetch(_KNOWN_PARTITIONS, rows=partition_rows(partitions))
    return frozenset(partitions - {partition_key(row) for row in rows})


async def _lock_expired(connection: Connection, retention_ms: int, max_rows: int) -> list[str]:
    """Lock groups with offsets to expire: no commit may come between the look and the deletion."""
    rows = await connection.fetch(_LOCK_EXPIRED, EMPTY, retention_ms, max_rows)
    return [group_id for (group_id,) in rows]


async def _delete_expired(
    connection: Connection, group_ids: Sequence[str], retention_ms: int, max_rows: int
) -> int:
    return await connection.execute(
        _DELETE_EXPIRED,
        EMPTY,
        retention_ms,
        max_rows,
        rows=Rows(_GROUP, [(group_id,) for group_id in group_ids]),
    )


async def _delete_groups_left_empty(
    connection: Connection, retention_ms: int, max_rows: int
) -> None:
    idle = await connection.fetch(_LOCK_IDLE, EMPTY, retention_ms, max_rows)
    # Asked again now that the rows are locked: a commit may have been faster.
    await connection.execute(_DELETE_IDLE, rows=Rows(_GROUP, [(group_id,) for (group_id,) in idle]))
