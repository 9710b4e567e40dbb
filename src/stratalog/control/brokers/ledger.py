"""Brokers and their leases on their ids, by the database's clock."""

from uuid import UUID

from stratalog.control.brokers.errors import BrokerIdTakenError
from stratalog.control.brokers.model import BrokerInfo
from stratalog.control.ledger import Ledger
from stratalog.control.sql.database import Connection, Row, as_uuid
from stratalog.ids import BrokerId

_SELECT = (
    "SELECT broker_id, host, port, rack, incarnation,"
    " expires_ms > {now_ms} AS alive FROM brokers ORDER BY broker_id"
)


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
            # Whoever listened there before has gone without saying so: the address is ours now.
            await connection.execute(
                "DELETE FROM brokers WHERE host = $1 AND port = $2 AND incarnation <> $3",
                host, port, incarnation,
            )  # fmt: skip
            present = [_broker(row) for row in await connection.fetch(_SELECT)]
            chosen = _choose(present, broker_id, incarnation)
            await connection.execute(
                "INSERT INTO brokers (broker_id, host, port, rack, incarnation, expires_ms)"
                " VALUES ($1, $2, $3, $4, $5, {now_ms} + $6)"
                " ON CONFLICT (broker_id) DO UPDATE SET host = excluded.host,"
                " port = excluded.port, rack = excluded.rack,"
                " incarnation = excluded.incarnation, expires_ms = excluded.expires_ms",
                chosen, host, port, rack, incarnation, lease_ms,
            )  # fmt: skip
            return BrokerInfo(
                broker_id=chosen,
                host=host,
                port=port,
                rack=rack,
                incarnation=incarnation,
                alive=True,
            )

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
        return [_broker(row) for row in rows]


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


def _broker(row: Row) -> BrokerInfo:
    broker_id, host, port, rack, incarnation, alive = row
    return BrokerInfo(
        broker_id=BrokerId(broker_id),
        host=host,
        port=port,
        rack=rack,
        incarnation=as_uuid(incarnation),
        alive=bool(alive),
    )
