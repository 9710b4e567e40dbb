"""Claims: which run works on which range of a partition, by a token that the run alone knows.

A claim ends when it expires, whatever its holder still does, so a token alone allows nothing.
Whoever commits under one locks the row of the claim and checks it in the same transaction: until
that transaction ends nobody takes the range over.

Rows of claims are locked after heads and in the order of their keys. A partition that was ever
claimed keeps its row, for the count of failures.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

from stratalog.control.keys import partition_key, partition_rows
from stratalog.control.ledger import Ledger
from stratalog.control.pipeline.errors import ClaimLostError
from stratalog.control.pipeline.model import Claim, ClaimToken, ClaimWish, RunId, UnitKind
from stratalog.control.sql.database import Connection, Row, Rows, as_uuid, shape
from stratalog.ids import Offset, PartitionIndex, TopicId, TopicPartition, kafka_base64

_MAX_ERROR_CHARS = 2000
_PARKED_FACTOR = 2
"""Parked partitions are claimed, where that is asked for, until they have failed so many times as
often as it takes to be parked: what parked them may be something that kills its driver."""

_TOPIC_ID = shape(topic_id="uuid")
_TOKEN = shape(token="uuid")
_FAILED = shape(token="uuid", error="text")
_PARK = shape(topic_id="uuid", partition="integer", attempts="integer", error="text")
_TAKE = shape(
    topic_id="uuid",
    partition="integer",
    attempts="integer",
    error="text",
    token="uuid",
    kind="text",
    first_offset="bigint",
    end_offset="bigint",
)
_HELD = shape(topic_id="uuid", partition="integer", token="uuid")
_HOLD = (
    "SELECT 1 FROM claims WHERE topic_id = $1 AND partition = $2 AND token = $3"
    " AND expires_ms > {now_ms}"
)
_GIVEN_BACK = "token = NULL, run_id = NULL, expires_ms = NULL, begun_token = NULL"


class Standing(NamedTuple):
    """The row of a partition as the next claim finds it."""

    partition: TopicPartition
    run_id: UUID | None
    """None if it is given back."""
    expires_ms: int
    begun: bool
    """Whether the work under it has begun."""
    attempts: int
    parked: bool


class Verdict(NamedTuple):
    """What becomes of a wish, unless somebody else has the partition."""

    granted: bool
    """Otherwise the partition is parked, now or since long."""
    attempts: int
    """With the failure of the holder whose claim expired while it was at work."""
    error: str | None = None
    """Of that holder."""


class ClaimOperations(Ledger):
    async def claim_ranges(
        self,
        run_id: RunId,
        wishes: Sequence[ClaimWish],
        *,
        duration_ms: int,
        max_attempts: int,
        also_parked: bool = False,
    ) -> list[Claim]:
        """Claim those of the ranges that nobody else holds now; one claim per partition.

        A claim that expired after its work had begun counts as a failure of the run that had it,
        and parks the partition if it was one too many. What this run holds already it gets anew,
        under another token, so that it may ask again when the outcome is unknown. With
        `also_parked` parked partitions are claimed, too, a few times at the most; they remain
        parked.
        """
        wanted = {wish.partition: wish for wish in reversed(wishes)}
        verdict_on = partial(
            judge, run_id=run_id, max_attempts=max_attempts, also_parked=also_parked
        )

        async def work(connection: Connection) -> list[Claim]:
            standings, now_ms = await _lock_free(connection, sorted(wanted))
            verdicts = {s.partition: verdict_on(s, now_ms=now_ms) for s in standings}
            await _park(connection, verdicts)
            granted = [
                (*key, verdict.attempts, verdict.error, self._new_token(), *_range(wanted[key]))
                for key, verdict in verdicts.items()
                if verdict is not None and verdict.granted
            ]
            return await _grant(connection, run_id, granted, duration_ms)

        return await self._database.write(work)

    async def renew_claims(self, run_id: RunId, *, duration_ms: int) -> set[ClaimToken]:
        """Extend the claims of a run that have not expired; return them."""

        async def work(connection: Connection) -> set[ClaimToken]:
            await connection.fetch(
                "SELECT 1 FROM claims WHERE run_id = $1 AND token IS NOT NULL"
                " ORDER BY topic_id, partition {for_update}",
                run_id,
            )
            rows = await connection.fetch(
                "UPDATE claims SET expires_ms = {now_ms} + $1 WHERE run_id = $2"
                " AND token IS NOT NULL AND expires_ms > {now_ms} RETURNING token",
                duration_ms,
                run_id,
            )
            return {ClaimToken(as_uuid(row[0])) for row in rows}

        return await self._database.write(work)

    async def begin_claims(self, tokens: Sequence[ClaimToken]) -> None:
        """Note that the work under these claims begins: from now on the silence of their holder
        counts. Those that are lost are left alone."""

        async def work(connection: Connection) -> None:
            await _lock_tokens(connection, tokens)
            await connection.execute(
                "UPDATE claims SET begun_token = claims.token FROM {rows}"
                " WHERE claims.token = r.token AND claims.expires_ms > {now_ms}",
                rows=Rows(_TOKEN, [(token,) for token in tokens]),
            )

        await self._database.write(work)

    async def release_claims(self, tokens: Sequence[ClaimToken], *, succeeded: bool = True) -> None:
        """Give claims back. After success the failures of partitions that are not parked are
        forgotten; otherwise they are as before the claim."""
        forgiven = "parked_ms IS NULL" if succeeded else "false"
        done_ms = "{now_ms}" if succeeded else "done_ms"

        async def work(connection: Connection) -> None:
            await _lock_tokens(connection, tokens)
            await connection.execute(
                f"UPDATE claims SET {_GIVEN_BACK},"
                f" attempts = CASE WHEN {forgiven} THEN 0 ELSE attempts END,"
                f" error = CASE WHEN {forgiven} THEN NULL ELSE error END,"
                f" failed_ms = CASE WHEN {forgiven} THEN NULL ELSE failed_ms END,"
                f" done_ms = {done_ms}"
                " FROM {rows} WHERE claims.token = r.token",
                rows=Rows(_TOKEN, [(token,) for token in tokens]),
            )

        await self._database.write(work)

    async def put_back_claims(self, tokens: Sequence[ClaimToken]) -> None:
        """Give claims back after a failure that is not counted. That it was is noted, until they
        succeed: others are to have their turn before."""

        async def work(connection: Connection) -> None:
            await _lock_tokens(connection, tokens)
            await connection.execute(
                f"UPDATE claims SET {_GIVEN_BACK}, failed_ms = {{now_ms}}"
                " FROM {rows} WHERE claims.token = r.token",
                rows=Rows(_TOKEN, [(token,) for token in tokens]),
            )

        await self._database.write(work)

    async def fail_claims(
        self, errors: Mapping[ClaimToken, str], *, max_attempts: int
    ) -> list[TopicPartition]:
        """Give claims back after failure, note and count it; return the partitions that this
        parks."""
        failed = [(token, _stored_text(error)) for token, error in errors.items()]

        async def work(connection: Connection) -> list[TopicPartition]:
            before = await _lock_tokens(connection, list(errors))
            rows = await connection.fetch(
                f"UPDATE claims SET {_GIVEN_BACK}, attempts = claims.attempts + 1,"
                " error = r.error, failed_ms = {now_ms}, parked_ms = CASE WHEN parked_ms IS NULL"
                " AND claims.attempts + 1 >= $1 THEN {now_ms} ELSE parked_ms END"
                " FROM {rows} WHERE claims.token = r.token"
                " RETURNING claims.topic_id, claims.partition, parked_ms",
                max_attempts,
                rows=Rows(_FAILED, failed),
            )
            parked_before = {partition_key(row) for row in before if row[2] is not None}
            parked = {partition_key(row) for row in rows if row[2] is not None}
            return sorted(parked - parked_before)

        return await self._database.write(work)

    async def unpark(self, topic_id: TopicId, partition: PartitionIndex | None = None) -> int:
        """Let parked partitions be worked on again."""
        return await self._database.write(
            lambda connection: connection.execute(
                "UPDATE claims SET parked_ms = NULL, attempts = 0, error = NULL, failed_ms = NULL"
                " WHERE topic_id = $1 AND parked_ms IS NOT NULL"
                " AND partition = COALESCE($2, partition)",
                topic_id,
                partition,
            )
        )

    def _new_token(self) -> ClaimToken:
        return ClaimToken(UUID(bytes=self._entropy(16), version=4))


def judge(
    standing: Standing, *, run_id: RunId, now_ms: int, max_attempts: int, also_parked: bool
) -> Verdict | None:
    """Whether the run may have the partition. None if somebody else has it."""
    attempts, error = standing.attempts, None
    if standing.run_id is not None and standing.run_id != run_id:
        if standing.expires_ms > now_ms:
            return None
        # A run claims all that it wants at once. What it had not come to did not end it.
        if standing.begun:
            attempts += 1
            error = f"run {standing.run_id} was at work on it and went silent"
    if standing.parked:
        granted = also_parked and attempts < _PARKED_FACTOR * max_attempts
    else:
        granted = attempts < max_attempts
    return Verdict(granted, attempts, error)


async def holds_claim(connection: Connection, partition: TopicPartition, token: ClaimToken) -> bool:
    """Whether the claim is held now. That says nothing about later: see `lock_claim`."""
    return bool(await connection.fetch(_HOLD, *partition, token))


async def lock_claim(connection: Connection, partition: TopicPartition, token: ClaimToken) -> bool:
    """Whether the claim is held, and then nobody else gets it before the transaction ends."""
    return bool(await connection.fetch(_HOLD + " {for_update}", *partition, token))


async def lock_claims(
    connection: Connection, tokens: Mapping[TopicPartition, ClaimToken]
) -> set[TopicPartition]:
    """Those of the claims that are held, all locked, in the order of their keys."""
    rows = await connection.fetch(
        "SELECT h.topic_id, h.partition FROM {rows} JOIN claims h ON h.topic_id = r.topic_id"
        " AND h.partition = r.partition AND h.token = r.token WHERE h.expires_ms > {now_ms}"
        " ORDER BY h.topic_id, h.partition {for_update_of_h}",
        rows=Rows(_HELD, [(*key, token) for key, token in tokens.items()]),
    )
    return {partition_key(row) for row in rows}


def claim_lost(partition: TopicPartition) -> ClaimLostError:
    return ClaimLostError(
        f"the claim on partition {partition.partition} of topic"
        f" {kafka_base64(partition.topic_id)} expired or was given back: somebody else may be at"
        " work on it, so drop this work and plan anew"
    )


async def _lock_free(
    connection: Connection, wanted: Sequence[TopicPartition]
) -> tuple[list[Standing], int]:
    """Make rows for partitions that have none, and lock those that nobody has locked."""
    # With its topic locked no claim is put under a partition that is just being purged.
    topics = await connection.fetch(
        "SELECT topic_id FROM topics WHERE deleted_ms IS NULL"
        " AND topic_id IN (SELECT topic_id FROM {rows}) ORDER BY topic_id {for_update}",
        rows=Rows(_TOPIC_ID, sorted({(key.topic_id,) for key in wanted})),
    )
    alive = {as_uuid(row[0]) for row in topics}
    source = partition_rows(key for key in wanted if key.topic_id in alive)
    await connection.execute(
        "INSERT INTO claims (topic_id, partition, attempts)"
        " SELECT p.topic_id, p.partition, 0 FROM {rows}"
        " JOIN partitions p ON p.topic_id = r.topic_id AND p.partition = r.partition"
        " WHERE true ORDER BY p.topic_id, p.partition"
        " ON CONFLICT (topic_id, partition) DO NOTHING",
        rows=source,
    )
    # A row that is locked belongs to somebody who renews it, or commits under it.
    rows = await connection.fetch(
        "SELECT topic_id, partition, run_id, expires_ms, COALESCE(begun_token = token, false),"
        " attempts, parked_ms FROM claims"
        " WHERE (topic_id, partition) IN (SELECT topic_id, partition FROM {rows})"
        " ORDER BY topic_id, partition {for_update_skip_locked}",
        rows=source,
    )
    [(now_ms,)] = await connection.fetch("SELECT {now_ms}")
    return [_standing(row) for row in rows], now_ms


def _standing(row: Row) -> Standing:
    _, _, run_id, expires_ms, begun, attempts, parked_ms = row
    return Standing(
        partition=partition_key(row),
        run_id=None if run_id is None else as_uuid(run_id),
        expires_ms=expires_ms or 0,
        begun=bool(begun),
        attempts=attempts,
        parked=parked_ms is not None,
    )


async def _park(connection: Connection, verdicts: Mapping[TopicPartition, Verdict | None]) -> None:
    """Park those that have failed too often: the last holder went silent, or fewer failures are
    borne with now."""
    failed = [
        (*key, verdict.attempts, verdict.error)
        for key, verdict in verdicts.items()
        if verdict is not None and not verdict.granted
    ]
    if failed:
        await connection.execute(
            f"UPDATE claims SET {_GIVEN_BACK}, attempts = r.attempts,"
            " error = COALESCE(r.error, claims.error),"
            " parked_ms = COALESCE(parked_ms, {now_ms}) FROM {rows}"
            " WHERE claims.topic_id = r.topic_id AND claims.partition = r.partition",
            rows=Rows(_PARK, failed),
        )


async def _grant(
    connection: Connection, run_id: RunId, granted: Sequence[Row], duration_ms: int
) -> list[Claim]:
    if not granted:
        return []
    rows = await connection.fetch(
        "UPDATE claims SET token = r.token, run_id = $1, kind = r.kind,"
        " first_offset = r.first_offset, end_offset = r.end_offset,"
        " expires_ms = {now_ms} + $2, attempts = r.attempts,"
        " error = COALESCE(r.error, claims.error) FROM {rows}"
        " WHERE claims.topic_id = r.topic_id AND claims.partition = r.partition"
        " RETURNING claims.topic_id, claims.partition, claims.token, claims.kind,"
        " claims.first_offset, claims.end_offset, claims.expires_ms, claims.attempts",
        run_id,
        duration_ms,
        rows=Rows(_TAKE, granted),
    )
    return sorted((_claim(run_id, row) for row in rows), key=lambda claim: claim.partition)


async def _lock_tokens(connection: Connection, tokens: Sequence[ClaimToken]) -> list[Row]:
    return await connection.fetch(
        "SELECT topic_id, partition, parked_ms FROM claims WHERE token IS NOT NULL"
        " AND token IN (SELECT token FROM {rows}) ORDER BY topic_id, partition {for_update}",
        rows=Rows(_TOKEN, [(token,) for token in tokens]),
    )


def _range(wish: ClaimWish) -> tuple[str, Offset, Offset]:
    return (wish.kind.value, wish.first_offset, wish.end_offset)


def _claim(run_id: RunId, row: Row) -> Claim:
    _, _, token, kind, first_offset, end_offset, expires_ms, attempts = row
    return Claim(
        token=ClaimToken(as_uuid(token)),
        run_id=run_id,
        partition=partition_key(row),
        kind=UnitKind(kind),
        first_offset=Offset(first_offset),
        end_offset=Offset(end_offset),
        expires_ms=expires_ms,
        attempts=attempts,
    )


def _stored_text(error: str) -> str:
    """What a database takes: PostgreSQL has no text with a zero in it."""
    return error.replace("\0", "")[:_MAX_ERROR_CHARS]
