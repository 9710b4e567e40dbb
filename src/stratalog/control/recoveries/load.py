"""Loading of a backup's rows into an empty database.

1. The schema is brought to the state of the backup, with the table `recoveries` besides. A crash
   leaves tables without a row, which count as an empty database.
2. One transaction loads all rows, and notes the recovery as begun. A crash leaves nothing of it.
3. The schema is brought up to date, one migration at a time, as that of any older cluster. A crash
   leaves a cluster whose recovery is begun: it is not used until the restore was run again.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from uuid import UUID

from stratalog.control.identity.ledger import FIRST_PRODUCER_ID
from stratalog.control.recoveries.model import RECOVERIES, RECOVERY, Recovery
from stratalog.control.sql.database import Connection, Database
from stratalog.control.sql.dump import Column, load_table
from stratalog.control.sql.migrate import migrate

_RECOVERIES_MIGRATION = 21
_NEWEST = f"""
    SELECT {RECOVERY.columns} FROM recoveries WHERE finished_ms IS NULL
    ORDER BY begun_ms DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableToLoad:
    name: str
    columns: Sequence[Column]
    lines: Callable[[], AbstractContextManager[Iterator[bytes]]]
    """Opens the rows. Called again if the transaction has to be repeated."""


async def load_tables(
    database: Database, tables: Sequence[TableToLoad], migrations: Sequence[int], begun: Recovery
) -> None:
    """Fill the database, which must hold no cluster."""
    await migrate(database, only={*migrations, _RECOVERIES_MIGRATION})

    async def work(connection: Connection) -> None:
        await connection.lock("restore")
        for table in tables:
            with table.lines() as lines:
                await load_table(connection, table.name, table.columns, lines)
        await insert_recovery(connection, begun)

    await database.write(work)
    await migrate(database)


async def found_cluster(database: Database, cluster_id: UUID, begun: Recovery) -> None:
    """Give an empty database the identity of a cluster of which nothing else is known."""
    await migrate(database)

    async def work(connection: Connection) -> None:
        await connection.lock("restore")
        await connection.execute(
            "INSERT INTO cluster (one, cluster_id, generation, next_producer_id)"
            " VALUES (1, $1, 0, $2)",
            cluster_id,
            FIRST_PRODUCER_ID,
        )
        await insert_recovery(connection, begun)

    await database.write(work)


async def has_cluster(database: Database) -> bool:
    """Return True if the database holds a cluster."""

    async def work(connection: Connection) -> bool:
        if not await _has_table(connection, "cluster"):
            return False
        return bool(await connection.fetch("SELECT 1 FROM cluster"))

    return await database.read(work)


async def unfinished_recovery(database: Database) -> Recovery | None:
    """Return the recovery that was begun and not finished, if there is one."""

    async def work(connection: Connection) -> Recovery | None:
        if not await _has_table(connection, RECOVERIES.name):
            return None
        rows = await connection.fetch(_NEWEST)
        return RECOVERY.read(rows[0]) if rows else None

    return await database.read(work)


async def finish_recovery(connection: Connection, recovery_id: UUID, report: str) -> None:
    await connection.execute(
        "UPDATE recoveries SET finished_ms = {now_ms}, report = $2 WHERE recovery_id = $1",
        recovery_id,
        report,
    )


async def insert_recovery(connection: Connection, begun: Recovery) -> None:
    await connection.execute(
        "INSERT INTO recoveries (recovery_id, ground, begun_ms) VALUES ($1, $2, {now_ms})",
        begun.recovery_id,
        begun.ground,
    )


async def _has_table(connection: Connection, name: str) -> bool:
    return bool(await connection.fetch("SELECT 1 FROM {tables} WHERE t.name = $1", name))
