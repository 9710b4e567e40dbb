"""Leases: an object that is readable when a lease begins stays readable until it ends."""

from uuid import UUID

from stratalog.control.ledger import Ledger
from stratalog.control.scans.errors import LeaseExpiredError
from stratalog.control.scans.model import LEASE, Lease
from stratalog.control.sql.database import Connection

MARK_MS = """(
    SELECT MAX(moment)
    FROM (SELECT {now_ms} AS moment UNION ALL SELECT MAX(started_ms) FROM leases) AS moments
)"""
"""The time of a mark, under the lease lock: no lease that began before may seem younger, also after
the database's clock was set back."""

_TAKE = f"""
    INSERT INTO leases (lease_id, holder, started_ms, expires_ms)
    SELECT $1, $2, now_ms, now_ms + $3 FROM (SELECT {{now_ms}} AS now_ms) AS clock
    RETURNING {LEASE.columns}
"""
_RENEW = f"""
    UPDATE leases SET expires_ms = {{now_ms}} + $1
    WHERE lease_id = $2 AND expires_ms > {{now_ms}} RETURNING {LEASE.columns}
"""


class LeaseOperations(Ledger):
    async def take_lease(self, holder: str, *, duration_ms: int) -> Lease:
        lease_id = UUID(bytes=self._entropy(16), version=4)

        async def work(connection: Connection) -> Lease:
            # Wait for markings under way: theirs is the older time, and they are seen from here
            # on. Every later mark carries a later time than the lease's start.
            await connection.lock("leases")
            await connection.execute("DELETE FROM leases WHERE expires_ms <= {now_ms}")
            rows = await connection.fetch(_TAKE, lease_id, holder, duration_ms)
            return LEASE.read(rows[0])

        return await self._database.write(work)

    async def renew_lease(self, lease_id: UUID, *, duration_ms: int) -> Lease:
        """Raises `StaleError` if it has expired."""
        rows = await self._database.write(
            lambda connection: connection.fetch(_RENEW, duration_ms, lease_id)
        )
        if not rows:
            raise LeaseExpiredError(f"lease {lease_id} has ended: take another and read again")
        return LEASE.read(rows[0])

    async def release_lease(self, lease_id: UUID) -> None:
        await self._database.write(
            lambda connection: connection.execute(
                "DELETE FROM leases WHERE lease_id = $1", lease_id
            )
        )

    async def oldest_lease_ms(self) -> int | None:
        """Return when the oldest of the live leases began."""
        rows = await self._database.read(
            lambda connection: connection.fetch(
                "SELECT MIN(started_ms) FROM leases WHERE expires_ms > {now_ms}"
            )
        )
        oldest: int | None = rows[0][0]
        return oldest
