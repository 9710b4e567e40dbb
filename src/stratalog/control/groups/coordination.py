"""Groups and their coordinators. The offsets of groups are in `offsets.py`.

A group's row names a broker and its incarnation. They hold the group for as long as that broker's
lease lasts by the database's clock; then the next broker that is asked gets it, with a higher term.
Every write names its term, which is checked in the same transaction with the group's row locked.
"""

from typing import NamedTuple
from uuid import UUID

from stratalog.control.brokers.model import BROKER_INFO, BrokerInfo
from stratalog.control.groups.errors import NotCoordinatorError, TooManyGroupsError
from stratalog.control.groups.model import (
    GROUP_RECORD,
    GROUP_SUMMARY,
    GroupKind,
    GroupRecord,
    GroupSummary,
)
from stratalog.control.ledger import Ledger
from stratalog.control.sql.database import Connection
from stratalog.ids import BrokerId

EMPTY = "Empty"

_IS_LIVE_COORDINATOR = """
    brokers.broker_id = groups.coordinator_id
        AND brokers.incarnation = groups.coordinator_incarnation
        AND brokers.expires_ms > {now_ms}
"""
_LIVE_BROKER = f"""
    SELECT {BROKER_INFO.columns} FROM brokers
    WHERE brokers.broker_id = $1 AND brokers.expires_ms > {{now_ms}}
"""
_LIVE_COORDINATOR = f"""
    SELECT {BROKER_INFO.columns} FROM groups JOIN brokers ON {_IS_LIVE_COORDINATOR}
    WHERE groups.group_id = $1
"""
_RECORD = f"SELECT {GROUP_RECORD.columns} FROM groups WHERE group_id = $1"
# A row that was never saved and has no offsets only says where a group would be.
_SUMMARIES = f"""
    SELECT {GROUP_SUMMARY.columns} FROM groups LEFT JOIN brokers ON {_IS_LIVE_COORDINATOR}
    WHERE length(groups.state) > 0
        OR EXISTS (SELECT 1 FROM group_offsets WHERE group_offsets.group_id = groups.group_id)
"""
_WITH_MEMBERS = f"""
    SELECT groups.group_id, brokers.broker_id
    FROM groups LEFT JOIN brokers ON {_IS_LIVE_COORDINATOR}
    WHERE groups.state_name <> '{EMPTY}' AND length(groups.state) > 0
        AND (brokers.broker_id IS NULL OR brokers.broker_id = $1)
"""
# When the group became empty is for the database's clock to say.
_SAVE = f"""
    UPDATE groups
    SET kind = $1, state_name = $2, protocol_type = $3, state = $4, changed_ms = {{now_ms}},
        empty_since_ms = CASE WHEN $2 = '{EMPTY}' THEN COALESCE(empty_since_ms, {{now_ms}}) END
    WHERE group_id = $5 AND term = $6
"""
# Not with {rows}: there, SQLite cuts a text at its first NUL, and another group would be made.
_INSERT = """
    INSERT INTO groups (group_id, kind, state_name, protocol_type, state, term, coordinator_id,
        coordinator_incarnation, changed_ms)
    VALUES ($1, $2, $3, '', $4, {now_ms}, $5, $6, {now_ms})
    ON CONFLICT (group_id) DO NOTHING
"""
_HAND_OVER = """
    UPDATE groups
    SET coordinator_id = $2, coordinator_incarnation = $3, term = term + 1, changed_ms = {now_ms}
    WHERE group_id = $1
"""


class _Candidate(NamedTuple):
    broker_id: BrokerId
    incarnation: UUID


class GroupOperations(Ledger):
    async def locate(self, group_id: str, preferred: BrokerId) -> BrokerInfo:
        """Return the group's coordinator if it is alive. Otherwise `preferred` becomes it.

        A group without a row gets none here: `preferred` makes it when the group is first used.
        """

        async def look(connection: Connection) -> BrokerInfo | None:
            coordinator = await _live_coordinator(connection, group_id)
            if coordinator is None and not await _exists(connection, group_id):
                return await _live_broker(connection, preferred)
            return coordinator

        # Nearly always there is nothing to write.
        coordinator = await self._database.read(look)
        if coordinator is not None:
            return coordinator

        async def work(connection: Connection) -> BrokerInfo:
            candidate = await _live_broker(connection, preferred)
            await _claim(connection, group_id, _Candidate(preferred, candidate.incarnation))
            found = await _live_coordinator(connection, group_id)
            if found is None:
                raise NotCoordinatorError(f"broker {preferred} is about to be removed")
            return found

        return await self._database.write(work)

    async def exists(self, group_id: str) -> bool:
        """Return whether the group has a row, which says nothing about its contents."""
        return await self._database.read(lambda connection: _exists(connection, group_id))

    async def open(
        self, group_id: str, broker_id: BrokerId, incarnation: UUID, *, most: int | None = None
    ) -> GroupRecord:
        """Return the group for its coordinator. A group without a row is a new one.

        Raises `NotCoordinatorError` if another live broker, or another incarnation, has it, and
        `TooManyGroupsError` if a new group would be more than `most`. Brokers that make groups in
        the same moment may exceed it by one each.
        """

        async def work(connection: Connection) -> GroupRecord:
            candidate = await _live_broker(connection, broker_id)
            if candidate.incarnation != incarnation:
                raise NotCoordinatorError(f"broker {broker_id} is another process now")
            if most is not None and not await _exists(connection, group_id):
                await _check_room(connection, most)
            await _claim(connection, group_id, _Candidate(broker_id, incarnation))
            holder = await _live_coordinator(connection, group_id)
            if holder is None or holder.incarnation != incarnation:
                raise NotCoordinatorError(f"another broker coordinates group {group_id!r}")
            return GROUP_RECORD.read((await connection.fetch(_RECORD, group_id))[0])

        return await self._database.write(work)

    async def save(self, record: GroupRecord) -> None:
        """Keep the group's new state. Raises `NotCoordinatorError` if its term is over."""
        saved = await self._database.write(
            lambda connection: connection.execute(
                _SAVE,
                record.kind.value,
                record.state_name,
                record.protocol_type,
                record.state,
                record.group_id,
                record.term,
            )
        )
        if not saved:
            raise _term_is_over(record.group_id)

    async def delete(self, group_id: str, term: int) -> None:
        """Forget the group and its offsets. Raises `NotCoordinatorError` if the term is over."""

        async def work(connection: Connection) -> None:
            await check_term(connection, group_id, term)
            await connection.execute("DELETE FROM group_offsets WHERE group_id = $1", group_id)
            await connection.execute("DELETE FROM groups WHERE group_id = $1", group_id)

        await self._database.write(work)

    async def all(self) -> list[GroupSummary]:
        """Return all groups, by id."""
        rows = await self._database.read(lambda connection: connection.fetch(_SUMMARIES))
        return sorted(map(GROUP_SUMMARY.read, rows), key=lambda summary: summary.group_id)

    async def with_members(self, broker_id: BrokerId) -> list[tuple[str, BrokerId | None]]:
        """Return the groups with members that this broker coordinates, or none that is alive: their
        ids, each with its live coordinator."""
        rows = await self._database.read(
            lambda connection: connection.fetch(_WITH_MEMBERS, broker_id)
        )
        return [(group_id, None if found is None else BrokerId(found)) for group_id, found in rows]


async def check_term(connection: Connection, group_id: str, term: int) -> None:
    """Lock the group's row, so that the term stays the same until the transaction ends."""
    rows = await connection.fetch(
        "SELECT term FROM groups WHERE group_id = $1 {for_update}", group_id
    )
    if not rows or rows[0][0] != term:
        raise _term_is_over(group_id)


async def _live_broker(connection: Connection, broker_id: BrokerId) -> BrokerInfo:
    rows = await connection.fetch(_LIVE_BROKER, broker_id)
    if not rows:
        raise NotCoordinatorError(f"broker {broker_id} is not alive: choose another")
    return BROKER_INFO.read(rows[0])


async def _live_coordinator(connection: Connection, group_id: str) -> BrokerInfo | None:
    rows = await connection.fetch(_LIVE_COORDINATOR, group_id)
    return BROKER_INFO.read(rows[0]) if rows else None


async def _exists(connection: Connection, group_id: str) -> bool:
    return bool(await connection.fetch("SELECT 1 FROM groups WHERE group_id = $1", group_id))


async def _check_room(connection: Connection, most: int) -> None:
    [(count,)] = await connection.fetch("SELECT count(*) FROM groups")
    if count >= most:
        raise TooManyGroupsError(
            f"there are {count} consumer groups, which is the most: delete groups that are not"
            " used, or raise groups.max_groups"
        )


async def _claim(connection: Connection, group_id: str, candidate: _Candidate) -> None:
    """Give the group to the candidate, unless a live broker has it."""
    await connection.execute(_INSERT, group_id, GroupKind.CLASSIC.value, EMPTY, b"", *candidate)
    await connection.fetch("SELECT 1 FROM groups WHERE group_id = $1 {for_update}", group_id)
    if await _live_coordinator(connection, group_id) is not None:
        return
    await connection.execute(_HAND_OVER, group_id, *candidate)


def _term_is_over(group_id: str) -> NotCoordinatorError:
    return NotCoordinatorError(f"this broker's term as coordinator of {group_id!r} is over")
