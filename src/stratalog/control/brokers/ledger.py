"""Brokers and their leases on their ids, by the database's clock."""

from uuid import UUID

from stratalog.control.brokers.errors import BrokerIdTakenError
from stratalog.control.brokers.model import BROKER_INFO, BROKERS, BrokerInfo
from stratalog.control.ledger import Ledger
from stratalog.control.sql.database import Connection
from stratalog.control.sql.table import rows_from
from stratalog.ids import BrokerId

_SELECT = f"SELECT {BROKER_INFO.columns} FROM brokers ORDER BY broker_id"
_REGISTERED = BROKERS.shape_without("expires_ms")
_INSERT = BROKERS.insert(_REGISTERED, expires_ms="{now_ms} + $1")
_REGISTER = f"""
    {_INSERT}
    ON CONFLICT (broker_id)
    DO UPDATE SET {BROKERS.overwrite("host", "port", "rack", "incarnation", "expires_ms")}
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
    ) -> BrokerInfo:
        """Take `broker_id`, or the lowest id that no live broker holds.

        A broker registered at the same address is dead, whatever its lease says, and is removed.
        """

        async def work(connection: Connection) -> BrokerInfo:
            # Two that look for a free id at once must not find the same.
            await connection.lock("brokers")
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
            )
            await connection.execute(_REGISTER, lease_ms, rows=rows_from(_REGISTERED, [broker]))
            return broker

        return await self._database.write(work)

    async def renew(self, broker_id: BrokerId, incarnation: UUID, *, lease_ms: int) -> bool:
        """Extend the lease. False if the id was lost to another incarnation."""
        renewed = await self._database.write(
            lambda connection: connection.execute(
                "UPDATE brokers SET expires_ms = {now_ms} + $1"
                " WHERE broker_id = $2 AND incarnation = $3",
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

    async def all(self) -> list[BrokerInfo]:
        """All brokers ever registered and not removed, live or not, by id."""
        rows = await self._database.read(lambda connection: connection.fetch(_SELECT))
        return BROKER_INFO.read_all(rows)


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
