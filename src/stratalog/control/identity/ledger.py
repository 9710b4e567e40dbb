"""The one row that holds the identity of a cluster."""

from functools import partial
from uuid import UUID

from stratalog.control.identity.model import (
    CLUSTER,
    Cluster,
    StoreRole,
    add_claim,
    parse_claims,
)
from stratalog.control.ledger import Ledger
from stratalog.control.sql.database import Connection, Database
from stratalog.ids import ProducerId

FIRST_PRODUCER_ID = ProducerId(1 << 40)
"""Kafka gives out its numbers from 0 on. Producers of an adopted topic keep theirs, so no producer
of this cluster may have been given the same number before the adoption."""
_KEY_BYTES = 32
RESTORE_JUMP = 1 << 32
"""More ids than were given out between a backup and its restore. Of the 63 bits of an id, enough
remain for two thousand million jumps."""
# A run that holds claims may have looked already where segments belong, and be about to add some.
_HAS_OWN_SEGMENTS = """
    EXISTS (SELECT 1 FROM segments WHERE store_url = '')
    OR EXISTS (SELECT 1 FROM claims WHERE token IS NOT NULL AND expires_ms > {now_ms})
"""


async def is_founded(database: Database) -> bool:
    """Return True if a broker has made a control plane of this database."""

    async def work(connection: Connection) -> bool:
        tables = await connection.fetch(
            "SELECT t.name FROM {tables} WHERE t.name IN ('cluster', 'schema_migrations')"
        )
        return len(tables) == 2 and bool(await connection.fetch("SELECT 1 FROM cluster"))

    return await database.read(work)


class IdentityLedger(Ledger):
    async def found(self) -> None:
        """Name a new cluster. Of several starters one wins, and the others take its name."""
        cluster_id = UUID(bytes=self._entropy(16), version=4)
        await self._database.write(
            lambda connection: connection.execute(
                "INSERT INTO cluster (one, cluster_id, generation, next_producer_id)"
                " VALUES (1, $1, 0, $2) ON CONFLICT (one) DO NOTHING",
                cluster_id,
                FIRST_PRODUCER_ID,
            )
        )

    async def cluster(self) -> Cluster:
        rows = await self._database.read(
            lambda connection: connection.fetch(f"SELECT {CLUSTER.columns} FROM cluster")
        )
        return CLUSTER.read(rows[0])

    async def hint_key(self) -> bytes:
        """The key that authenticates hints between brokers. The first call makes it."""
        fresh = self._entropy(_KEY_BYTES)

        async def work(connection: Connection) -> bytes:
            await connection.execute(
                "INSERT INTO secrets (name, secret) VALUES ('hints', $1)"
                " ON CONFLICT (name) DO NOTHING",
                fresh,
            )
            [(key,)] = await connection.fetch("SELECT secret FROM secrets WHERE name = 'hints'")
            return bytes(key)

        return await self._database.write(work)

    async def first_claim(self, role: StoreRole) -> Cluster:
        """Note a claim on a store that has no marker, before it gets one.

        The new claim is the last one. A store whose id is known keeps it."""
        claimed = await self._claim(role, found=None, generations=0)
        assert claimed is not None
        return claimed

    async def next_claim(
        self, role: StoreRole, found: str, store_id: UUID | None
    ) -> Cluster | None:
        """Raise the generation by one, and note a claim on a store whose marker was `found` with
        another one. None if that claim is not known any more: the marker has changed since.

        The store's own id is noted if none is known yet."""
        return await self._claim(role, found=found, generations=1, store_id=store_id)

    async def _claim(
        self, role: StoreRole, *, found: str | None, generations: int, store_id: UUID | None = None
    ) -> Cluster | None:
        claim = str(UUID(bytes=self._entropy(16), version=4))
        fresh = store_id or UUID(bytes=self._entropy(16), version=4)

        async def work(connection: Connection) -> Cluster | None:
            await connection.lock("claims")
            [(text,)] = await connection.fetch(f"SELECT {role.claims_column} FROM cluster")
            known = parse_claims(text)
            if found is not None and found not in known:
                return None
            rows = await connection.fetch(
                f"UPDATE cluster SET generation = generation + $1, {role.claims_column} = $2,"
                f" {role.id_column} = COALESCE({role.id_column}, $3) RETURNING {CLUSTER.columns}",
                generations,
                " ".join(add_claim(known, claim, found)),
                fresh,
            )
            return CLUSTER.read(rows[0])

        return await self._database.write(work)

    async def take_over(self, role: StoreRole, store_id: UUID | None, claim: str) -> None:
        """Note the id and the claim that a store's marker has, for a control plane that was
        restored and may not know them."""

        async def work(connection: Connection) -> None:
            await connection.lock("claims")
            [(text,)] = await connection.fetch(f"SELECT {role.claims_column} FROM cluster")
            known = [one for one in parse_claims(text) if one != claim]
            await connection.execute(
                f"UPDATE cluster SET {role.claims_column} = $1,"
                f" {role.id_column} = COALESCE({role.id_column}, $2)",
                " ".join(add_claim(known, claim, None)),
                store_id,
            )

        await self._database.write(work)

    async def skip_producer_ids(self) -> None:
        """Leave out the ids that this control plane may have given out and forgotten.

        For a control plane that may have been restored from a backup. A producer that got its id
        after the backup goes on with it. A second producer of the same id would have its records
        taken for repetitions: acknowledged, and not stored."""
        await self._database.write(
            lambda connection: connection.execute(
                "UPDATE cluster SET next_producer_id = next_producer_id + $1", RESTORE_JUMP
            )
        )

    async def halt(self, reason: str) -> None:
        """Halt the cluster: from now on every commit of blocks is refused, and programs that write
        do not start. The first reason stays. Producer ids that may have been given out are skipped,
        because the control plane may have forgotten them, too."""
        await self._database.write(
            lambda connection: connection.execute(
                "UPDATE cluster SET halted_reason = $1, halted_ms = {now_ms},"
                " next_producer_id = next_producer_id + $2 WHERE halted_ms IS NULL",
                reason,
                RESTORE_JUMP,
            )
        )

    async def accept(self, *, generation: int = 0) -> None:
        """Go on with this control plane after it went back, whatever it has forgotten.

        In one transaction: no producer id is given out twice, writers that still believe in the
        lost commits are ended, the generation is at least the given one, and the cluster is not
        halted any more."""

        async def work(connection: Connection) -> None:
            await connection.execute(
                "UPDATE cluster SET next_producer_id = next_producer_id + $1,"
                " generation = CASE WHEN generation < $2 THEN $2 ELSE generation END,"
                " halted_reason = NULL, halted_ms = NULL, accepted_ms = {now_ms}",
                RESTORE_JUMP,
                generation,
            )
            await connection.execute(
                "UPDATE writers SET ended_ms = {now_ms} WHERE ended_ms IS NULL"
            )

        await self._database.write(work)

    async def note_segments_apart(self, apart: bool, *, moved: bool = False) -> bool:
        """Note whether the cluster's own segments lie in a store apart from its blocks, and return
        the note. Once there are any, or claims under which there soon may be, the first note
        stays, unless the segments were `moved`."""
        return await self._database.write(partial(_note_segments_apart, apart=apart, moved=moved))


async def _note_segments_apart(connection: Connection, apart: bool, moved: bool) -> bool:
    await connection.execute(
        "UPDATE cluster SET segments_apart = $1 WHERE segments_apart IS NULL"
        + (" OR TRUE" if moved else f" OR NOT ({_HAS_OWN_SEGMENTS})"),
        apart,
    )
    [(noted,)] = await connection.fetch("SELECT segments_apart FROM cluster")
    return bool(noted)
