"""Groups and who coordinates them. Their offsets are in `group_offsets.py`.

A group's row names a broker and its incarnation. They hold the group for as long as that broker's
lease lasts by the database's clock; then the next who is asked gets it, with a higher term. Every
write names its term, which is checked in the same transaction with the group's row locked.
"""

from typing import NamedTuple
from uuid import UUID

from stratalog.control.brokers.model import BrokerInfo
from stratalog.control.groups.errors import NotCoordinatorError
from stratalog.control.groups.model import GroupKind, GroupRecord, GroupSummary
from stratalog.control.ledger import Ledger
from stratalog.control.sql.database import Connection, Row, as_uuid
from stratalog.ids import BrokerId

EMPTY = "Empty"

_BROKER = "b.broker_id, b.host, b.port, b.rack, b.incarnation"
_COORDINATOR = (
    " brokers b ON b.broker_id = g.coordinator_id"
    " AND b.incarnation = g.coordinator_incarnation AND b.expires_ms > {now_ms}"
)
_RECORD = (
    "SELECT g.group_id, g.term, g.kind, g.state_name, g.protocol_type, g.state, g.empty_since_ms"
    " FROM groups g WHERE g.group_id = $1"
)


class _Candidate(NamedTuple):
    broker_id: BrokerId
    incarnation: UUID


class GroupOperations(Ledger):
    async def locate(self, group_id: str, preferred: BrokerId) -> BrokerInfo:
        """The group's coordinator if that broker is alive. Otherwise `preferred` becomes it."""
        # Nearly always there is nothing to write.
        coordinator = await self._database.read(
            lambda connection: _live_coordinator(connection, group_id)
        )
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

    async def open(self, group_id: str, broker_id: BrokerId, incarnation: UUID) -> GroupRecord:
        """What is known of a group, for its coordinator. A group that nobody knows is a new one.

        Raises `NotCoordinatorError` if another live broker, or another incarnation, has it.
        """

        async def work(connection: Connection) -> GroupRecord:
            candidate = await _live_broker(connection, broker_id)
            if candidate.incarnation != incarnation:
                raise NotCoordinatorError(f"broker {broker_id} is another process now")
            await _claim(connection, group_id, _Candidate(broker_id, incarnation))
            holder = await _live_coordinator(connection, group_id)
            if holder is None or holder.incarnation != incarnation:
                raise NotCoordinatorError(f"another broker coordinates group {group_id!r}")
            return _record((await connection.fetch(_RECORD, group_id))[0])

        return await self._database.write(work)

    async def save(self, record: GroupRecord) -> None:
        """Keep the group's new state. Raises `NotCoordinatorError` if its term is over."""
        # When the group became empty is for the database's clock to say.
        saved = await self._database.write(
            lambda connection: connection.execute(
                "UPDATE groups SET kind = $1, state_name = $2, protocol_type = $3, state = $4,"
                " changed_ms = {now_ms}, empty_since_ms ="
                f" CASE WHEN $2 = '{EMPTY}' THEN COALESCE(empty_since_ms, {{now_ms}}) END"
                " WHERE group_id = $5 AND term = $6",
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
        """All groups, by id."""
        # A row that was never saved and has no offsets only says where a group would be.
        rows = await self._database.read(
            lambda connection: connection.fetch(
                f"SELECT g.group_id, g.kind, g.state_name, g.protocol_type, {_BROKER}"
                f" FROM groups g LEFT JOIN{_COORDINATOR}"
                " WHERE length(g.state) > 0"
                " OR EXISTS (SELECT 1 FROM group_offsets o WHERE o.group_id = g.group_id)"
            )
        )
        return sorted(map(_summary, rows), key=lambda summary: summary.group_id)


async def check_term(connection: Connection, group_id: str, term: int) -> None:
    """Lock the group's row, so that the term stays what it is until the transaction ends."""
    rows = await connection.fetch(
        "SELECT term FROM groups WHERE group_id = $1 {for_update}", group_id
    )
    if not rows or rows[0][0] != term:
        raise _term_is_over(group_id)


async def _live_broker(connection: Connection, broker_id: BrokerId) -> BrokerInfo:
    rows = await connection.fetch(
        f"SELECT {_BROKER} FROM brokers b WHERE b.broker_id = $1 AND b.expires_ms > {{now_ms}}",
        broker_id,
    )
    if not rows:
        raise NotCoordinatorError(f"broker {broker_id} is not alive: choose another")
    return _broker(rows[0])


async def _live_coordinator(connection: Connection, group_id: str) -> BrokerInfo | None:
    rows = await connection.fetch(
        f"SELECT {_BROKER} FROM groups g JOIN{_COORDINATOR} WHERE g.group_id = $1", group_id
    )
    return _broker(rows[0]) if rows else None


async def _claim(connection: Connection, group_id: str, candidate: _Candidate) -> None:
    """Give the group to the candidate, unless a live broker has it."""
    await connection.execute(
        "INSERT INTO groups (group_id, kind, state_name, protocol_type, state, term,"
        " coordinator_id, coordinator_incarnation, changed_ms)"
        " VALUES ($1, $2, $3, '', $4, {now_ms}, $5, $6, {now_ms})"
        " ON CONFLICT (group_id) DO NOTHING",
        group_id,
        GroupKind.CLASSIC.value,
        EMPTY,
        b"",
        *candidate,
    )
    await connection.fetch("SELECT 1 FROM groups WHERE group_id = $1 {for_update}", group_id)
    if await _live_coordinator(connection, group_id) is not None:
        return
    await connection.execute(
        "UPDATE groups SET coordinator_id = $2, coordinator_incarnation = $3, term = term + 1,"
        " changed_ms = {now_ms} WHERE group_id = $1",
        group_id,
        *candidate,
    )


def _term_is_over(group_id: str) -> NotCoordinatorError:
    return NotCoordinatorError(f"this broker's term as coordinator of {group_id!r} is over")


def _record(row: Row) -> GroupRecord:
    group_id, term, kind, state_name, protocol_type, state, empty_since_ms = row
    return GroupRecord(
        group_id=group_id,
        term=term,
        kind=GroupKind(kind),
        state_name=state_name,
        protocol_type=protocol_type,
        state=state,
        empty_since_ms=empty_since_ms,
    )


def _summary(row: Row) -> GroupSummary:
    group_id, kind, state_name, protocol_type, *broker = row
    return GroupSummary(
        group_id=group_id,
        kind=GroupKind(kind),
        state_name=state_name,
        protocol_type=protocol_type,
        coordinator=None if broker[0] is None else _broker(tuple(broker)),
    )


def _broker(row: Row) -> BrokerInfo:
    broker_id, host, port, rack, incarnation = row
    return BrokerInfo(
        broker_id=BrokerId(broker_id),
        host=host,
        port=port,
        rack=rack,
        incarnation=as_uuid(incarnation),
        alive=True,
    )
