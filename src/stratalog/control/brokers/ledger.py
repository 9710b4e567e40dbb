"""Brokers and their leases on their ids, by the database's clock."""

from uuid import UUID

from stratalog.control.brokers.errors import (
    AddressTakenError,
    BrokerAliveError,
    BrokerIdTakenError,
    BrokerNotRegisteredError,
)
from stratalog.control.brokers.model import BROKER_INFO, BROKERS, BrokerInfo
from stratalog.control.ledger import Ledger
from stratalog.control.sql.database import Connection
from stratalog.control.sql.table import rows_from
from stratalog.ids import BrokerId

_SELECT_ONE = f"SELECT {BROKER_INFO.columns} FROM brokers"
_SELECT = f"{_SELECT_ONE} ORDER BY broker_id"
_HOLDER = """
    SELECT broker_id, incarnation, expires_ms, socket_name FROM brokers
    WHERE host = $1 AND port = $2 AND incarnation <> $3 AND expires_ms > {now_ms}
"""
_REGISTERED = BROKERS.shape_without("expires_ms")
_INSERT = BROKERS.insert(_REGISTERED, expires_ms="{now_ms} + $1")
_REGISTER = f"""
    {_INSERT}
    ON CONFLICT (broker_id)
    DO UPDATE SET {
    BROKERS.overwrite("host", "port", "rack", "incarnation", "expires_ms", "socket_name")
}
"""


class BrokersLedger(Ledger):
    async def register(
        self,
        broker_id: BrokerId | None,
        *,
        host: str,
        port: int,
        rack: str | None,
        incarnation: UUID,
        lease_ms: int,
        socket_name: str | None = None,
    ) -> BrokerInfo:
        """Take `broker_id`, or the lowest id that no live broker holds.

        A broker registered at the same address is removed if it is dead: its lease has ended, or
        it had the very socket that the new broker has bound. Otherwise `AddressTakenError`.
        """

        async def work(connection: Connection) -> BrokerInfo:
            # Two that look for a free id at once must not find the same.
            await connection.lock("brokers")
            await _check_address(connection, host, port, incarnation, socket_name)
            # A broker that listened there before has gone without a word: the address is ours now.
            await connection.execute(
                "DELETE FROM brokers WHERE host = $1 AND port = $2 AND incarnation <> $3",
                host, port, incarnation,
            )  # fmt: skip
            present = BROKER_INFO.read_all(await connection.fetch(_SELECT))
            chosen = _choose(present, broker_id, incarnation)
            broker = BrokerInfo(
                broker_id=chosen,
                host=host,
                port=port,
                rack=rack,
                incarnation=incarnation,
                alive=True,
                socket_name=socket_name,
            )
            await connection.execute(_REGISTER, lease_ms, rows=rows_from(_REGISTERED, [broker]))
            return broker

        return await self._database.write(work)

    async def renew(self, broker_id: BrokerId, incarnation: UUID, *, lease_ms: int) -> bool:
        """Extend the lease. False if it has ended, or the id was lost to another incarnation.

        A lease that has ended is not revived: another broker may be about to take the id."""
        renewed = await self._database.write(
            lambda connection: connection.execute(
                "UPDATE brokers SET expires_ms = {now_ms} + $1"
                " WHERE broker_id = $2 AND incarnation = $3 AND expires_ms > {now_ms}",
                lease_ms,
                broker_id,
                incarnation,
            )
        )
        return renewed == 1

    async def remove(self, broker_id: BrokerId, incarnation: UUID) -> None:
        await self._database.write(
            lambda connection: connection.execute(
                "DELETE FROM brokers WHERE broker_id = $1 AND incarnation = $2",
                broker_id,
                incarnation,
            )
        )

    async def unregister(self, broker_id: BrokerId) -> None:
        """Remove a broker that is dead, and perhaps never comes back."""

        async def work(connection: Connection) -> None:
            await connection.lock("brokers")
            rows = await connection.fetch(f"{_SELECT_ONE} WHERE broker_id = $1", broker_id)
            if not rows:
                raise BrokerNotRegisteredError(f"there is no broker {broker_id}")
            if BROKER_INFO.read(rows[0]).alive:
                raise BrokerAliveError(f"broker {broker_id} is alive: stop it first")
            # A broker that registers again after the look is not removed.
            removed = await connection.execute(
                "DELETE FROM brokers WHERE broker_id = $1 AND expires_ms <= {now_ms}", broker_id
            )
            if not removed:
                raise BrokerAliveError(f"broker {broker_id} is alive again: stop it first")

        await self._database.write(work)

    async def all(self) -> list[BrokerInfo]:
        """All brokers ever registered and not removed, live or not, by id."""
        rows = await self._database.read(lambda connection: connection.fetch(_SELECT))
        return BROKER_INFO.read_all(rows)


async def _check_address(
    connection: Connection, host: str, port: int, incarnation: UUID, socket_name: str | None
) -> None:
    for holder, other, expires_ms, other_socket in await connection.fetch(
        _HOLDER, host, port, incarnation
    ):
        if socket_name is not None and socket_name == other_socket:
            continue
        raise AddressTakenError(
            f"broker {holder} (incarnation {other}) is registered at {host}:{port}, the address"
            f" that this broker (incarnation {incarnation}) advertises too: give each broker an"
            " address of its own (broker.advertise)",
            renewals=expires_ms,
        )


def _choose(present: list[BrokerInfo], wanted: BrokerId | None, incarnation: UUID) -> BrokerId:
    """The wanted id, one's own from an earlier try, or the lowest that no live broker holds."""
    taken = {b.broker_id for b in present if b.alive and b.incarnation != incarnation}
    if wanted is not None:
        if wanted in taken:
            raise BrokerIdTakenError(
                f"broker {wanted} is alive: stop it, wait for its lease to end, or take another id"
            )
        return wanted
    own = [b.broker_id for b in present if b.incarnation == incarnation]
    return own[0] if own else next(BrokerId(i) for i in range(len(taken) + 1) if i not in taken)
