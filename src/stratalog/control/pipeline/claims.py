"""Claims: which run works on which range of a partition, by a token that the run alone knows.

A claim ends when it expires, whatever its holder still does, so a token alone allows nothing. A
commit under a claim locks its row and checks it in the same transaction: until that transaction
ends, no other run takes the range over.

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
from stratalog.control.pipeline.model import (
    CLAIM,
    CLAIMED_PARTITION,
    CLAIMS,
    Claim,
    ClaimToken,
    ClaimWish,
    RunId,
)
from stratalog.control.sql.database import Connection, Row, Rows, as_uuid
from stratalog.control.sql.table import Expression, Selection
from stratalog.ids import Offset, PartitionIndex, TopicId, TopicPartition, kafka_base64

_MAX_ERROR_CHARS = 2000
_PARKED_FACTOR = 2
"""With `also_parked`, a parked partition is claimed until it has failed this many times as often as
it takes to be parked. The limit is there because its failure may kill the driver."""

_TOPIC_ID = CLAIMS.shape("topic_id")
_TOKEN = CLAIMS.shape("token")
_FAILED = CLAIMS.shape("token", "error")
_PARKED = CLAIMS.shape("topic_id", "partition", "attempts", "error")
_GRANTED = CLAIMS.shape(
    "topic_id",
    "partition",
    "attempts",
    "error",
    "token",
    "kind",
    "first_offset",
    "end_offset",
)
_HELD = CLAIMS.shape("topic_id", "partition", "token")
_HOLD = """
    SELECT 1 FROM claims
    WHERE topic_id = $1 AND partition = $2 AND token = $3 AND expires_ms > {now_ms}
"""
_LOCK_HELD = """
    SELECT claims.topic_id, claims.partition FROM {rows}
    JOIN claims ON claims.topic_id = r.topic_id AND claims.partition = r.partition
        AND claims.token = r.token
    WHERE claims.expires_ms > {now_ms}
    ORDER BY claims.topic_id, claims.partition {for_update_of claims}
"""
_LOCK_TOKENS = """
    SELECT topic_id, partition, parked_ms FROM claims
    WHERE token IS NOT NULL AND token IN (SELECT token FROM {rows})
    ORDER BY topic_id, partition {for_update}
"""
_LOCK_RUN = """
    SELECT 1 FROM claims WHERE run_id = $1 AND token IS NOT NULL
    ORDER BY topic_id, partition {for_update}
"""
_RENEW = """
    UPDATE claims SET expires_ms = {now_ms} + $1
    WHERE run_id = $2 AND token IS NOT NULL AND expires_ms > {now_ms} RETURNING token
"""
_BEGIN = """
    UPDATE claims SET begun_token = claims.token FROM {rows}
    WHERE claims.token = r.token AND claims.expires_ms > {now_ms}
"""
_GIVEN_BACK = "token = NULL, run_id = NULL, expires_ms = NULL, begun_token = NULL"
_PUT_BACK = f"""
    UPDATE claims SET {_GIVEN_BACK}, failed_ms = {{now_ms}} FROM {{rows}}
    WHERE claims.token = r.token
"""
_FAIL = f"""
    UPDATE claims
    SET {_GIVEN_BACK}, attempts = claims.attempts + 1, error = r.error, failed_ms = {{now_ms}},
        parked_ms = CASE
            WHEN parked_ms IS NULL AND claims.attempts + 1 >= $1 THEN {{now_ms}} ELSE parked_ms
        END
    FROM {{rows}} WHERE claims.token = r.token
    RETURNING claims.topic_id, claims.partition, parked_ms
"""
_UNPARK = """
    UPDATE claims SET parked_ms = NULL, attempts = 0, error = NULL, failed_ms = NULL
    WHERE topic_id = $1 AND parked_ms IS NOT NULL AND partition = COALESCE($2, partition)
"""
_LOCK_TOPICS = """
    SELECT topic_id FROM topics
    WHERE deleted_ms IS NULL AND topic_id IN (SELECT topic_id FROM {rows})
    ORDER BY topic_id {for_update}
"""
_MAKE_ROWS = """
    INSERT INTO claims (topic_id, partition, attempts)
    SELECT partitions.topic_id, partitions.partition, 0 FROM {rows}
    JOIN partitions ON partitions.topic_id = r.topic_id AND partitions.partition = r.partition
    WHERE true ORDER BY partitions.topic_id, partitions.partition
    ON CONFLICT (topic_id, partition) DO NOTHING
"""
_PARK = f"""
    UPDATE claims
    SET {_GIVEN_BACK}, attempts = r.attempts, error = COALESCE(r.error, claims.error),
        parked_ms = COALESCE(parked_ms, {{now_ms}})
    FROM {{rows}} WHERE claims.topic_id = r.topic_id AND claims.partition = r.partition
"""
_GRANT = f"""
    UPDATE claims
    SET token = r.token, run_id = $1, kind = r.kind, first_offset = r.first_offset,
        end_offset = r.end_offset, expires_ms = {{now_ms}} + $2, attempts = r.attempts,
        error = COALESCE(r.error, claims.error)
    FROM {{rows}} WHERE claims.topic_id = r.topic_id AND claims.partition = r.partition
    RETURNING {CLAIM.columns}
"""


class Standing(NamedTuple):
    """The row of a partition as the next claim finds it."""

    partition: TopicPartition
    run_id: UUID | None
    """None if it is given back."""
    expires_ms: int
    begun: bool
    """True if the work under it has begun."""
    attempts: int
    parked: bool


_STANDING = Selection(
    Standing,
    CLAIMS,
    partition=CLAIMED_PARTITION,
    expires_ms=Expression("COALESCE(claims.expires_ms, 0)", "bigint"),
    begun=Expression("COALESCE(claims.begun_token = claims.token, false)", "boolean"),
    parked=Expression("claims.parked_ms IS NOT NULL", "boolean"),
)
_LOCK_STANDINGS = f"""
    SELECT {_STANDING.columns} FROM claims
    WHERE (topic_id, partition) IN (SELECT topic_id, partition FROM {{rows}})
    ORDER BY topic_id, partition {{for_update_skip_locked}}
"""


class Verdict(NamedTuple):
    """The decision about a wish, unless another run has the partition."""

    granted: bool
    """If False, the partition is parked, now or since long."""
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
        """Claim the ranges that no other run holds now; one claim per partition.

        A claim that expired after its work had begun counts as a failure of the run that had it,
        and parks the partition if it was one too many. A run that repeats its wishes, because the
        outcome is unknown, gets its claims again under other tokens. With `also_parked` parked
        partitions are claimed, too, a few times at the most; they remain parked.
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
            await connection.fetch(_LOCK_RUN, run_id)
            rows = await connection.fetch(_RENEW, duration_ms, run_id)
            return {ClaimToken(as_uuid(row[0])) for row in rows}

        return await self._database.write(work)

    async def begin_claims(self, tokens: Sequence[ClaimToken]) -> None:
        """Note that the work under these claims begins: from now on the silence of their holder
        counts. Lost claims are left alone."""

        async def work(connection: Connection) -> None:
            await _lock_tokens(connection, tokens)
            await connection.execute(_BEGIN, rows=_token_rows(tokens))

        await self._database.write(work)

    async def release_claims(self, tokens: Sequence[ClaimToken], *, succeeded: bool = True) -> None:
        """Give claims back. After success the failures of partitions that are not parked are
        forgotten; otherwise they are as before the claim."""
        forgiven = "parked_ms IS NULL" if succeeded else "false"
        done_ms = "{now_ms}" if succeeded else "done_ms"

        async def work(connection: Connection) -> None:
            await _lock_tokens(connection, tokens)
            await connection.execute(
                f"""
                UPDATE claims
                SET {_GIVEN_BACK},
                    attempts = CASE WHEN {forgiven} THEN 0 ELSE attempts END,
                    error = CASE WHEN {forgiven} THEN NULL ELSE error END,
                    failed_ms = CASE WHEN {forgiven} THEN NULL ELSE failed_ms END,
                    done_ms = {done_ms}
                FROM {{rows}} WHERE claims.token = r.token
                """,
                rows=_token_rows(tokens),
            )

        await self._database.write(work)

    async def put_back_claims(self, tokens: Sequence[ClaimToken]) -> None:
        """Give claims back after a failure that is not counted. The time of the failure is kept
        until they succeed, so that other partitions have their turn before."""

        async def work(connection: Connection) -> None:
            await _lock_tokens(connection, tokens)
            await connection.execute(_PUT_BACK, rows=_token_rows(tokens))

        await self._database.write(work)

    async def fail_claims(
        self, errors: Mapping[ClaimToken, str], *, max_attempts: int
    ) -> list[TopicPartition]:
        """Give claims back after failure, note and count it; return the partitions that this
        parks."""
        failed = [(token, _stored_text(error)) for token, error in errors.items()]

        async def work(connection: Connection) -> list[TopicPartition]:
            before = await _lock_tokens(connection, list(errors))
            rows = await connection.fetch(_FAIL, max_attempts, rows=Rows(_FAILED, failed))
            parked_before = {partition_key(row) for row in before if row[2] is not None}
            parked = {partition_key(row) for row in rows if row[2] is not None}
            return sorted(parked - parked_before)

        return await self._database.write(work)

    async def unpark(self, topic_id: TopicId, partition: PartitionIndex | None = None) -> int:
        """Let parked partitions be worked on again."""
        return await self._database.write(
            lambda connection: connection.execute(_UNPARK, topic_id, partition)
        )

    def _new_token(self) -> ClaimToken:
        return ClaimToken(UUID(bytes=self._entropy(16), version=4))


def judge(
    standing: Standing, *, run_id: RunId, now_ms: int, max_attempts: int, also_parked: bool
) -> Verdict | None:
    """Decide if the run may have the partition. None if another run has it."""
    attempts, error = standing.attempts, None
    if standing.run_id is not None and standing.run_id != run_id:
        if standing.expires_ms > now_ms:
            return None
        # A run claims all its ranges at once. A range that it had not come to did not end it.
        if standing.begun:
            attempts += 1
            error = f"run {standing.run_id} was at work on it and went silent"
    if standing.parked:
        granted = also_parked and attempts < _PARKED_FACTOR * max_attempts
    else:
        granted = attempts < max_attempts
    return Verdict(granted, attempts, error)


async def holds_claim(connection: Connection, partition: TopicPartition, token: ClaimToken) -> bool:
    """Return True if the claim is held now. That says nothing about later: see `lock_claim`."""
    return bool(await connection.fetch(_HOLD, *partition, token))


async def lock_claim(connection: Connection, partition: TopicPartition, token: ClaimToken) -> bool:
    """Return True if the claim is held. Then it stays held until the transaction ends."""
    return bool(await connection.fetch(_HOLD + " {for_update}", *partition, token))


async def lock_claims(
    connection: Connection, tokens: Mapping[TopicPartition, ClaimToken]
) -> set[TopicPartition]:
    """Lock the claims that are held, in the order of their keys, and return them."""
    rows = await connection.fetch(
        _LOCK_HELD, rows=Rows(_HELD, [(*key, token) for key, token in tokens.items()])
    )
    return {partition_key(row) for row in rows}


def claim_lost(partition: TopicPartition) -> ClaimLostError:
    return ClaimLostError(
        f"the claim on partition {partition.partition} of topic"
        f" {kafka_base64(partition.topic_id)} expired or was given back: another run may be at"
        " work on it, so drop this work and plan again"
    )


async def _lock_free(
    connection: Connection, wanted: Sequence[TopicPartition]
) -> tuple[list[Standing], int]:
    """Make rows for partitions that have none, and lock the rows that are not locked."""
    # With its topic locked no claim is put under a partition that is just being purged.
    topics = await connection.fetch(
        _LOCK_TOPICS, rows=Rows(_TOPIC_ID, sorted({(key.topic_id,) for key in wanted}))
    )
    alive = {as_uuid(row[0]) for row in topics}
    source = partition_rows(key for key in wanted if key.topic_id in alive)
    await connection.execute(_MAKE_ROWS, rows=source)
    # A row that is locked belongs to a run that renews it, or commits under it.
    rows = await connection.fetch(_LOCK_STANDINGS, rows=source)
    [(now_ms,)] = await connection.fetch("SELECT {now_ms}")
    return _STANDING.read_all(rows), now_ms


async def _park(connection: Connection, verdicts: Mapping[TopicPartition, Verdict | None]) -> None:
    """Park partitions that have failed too often: the last holder went silent, or the limit is
    lower now."""
    failed = [
        (*key, verdict.attempts, verdict.error)
        for key, verdict in verdicts.items()
        if verdict is not None and not verdict.granted
    ]
    if failed:
        await connection.execute(_PARK, rows=Rows(_PARKED, failed))


async def _grant(
    connection: Connection, run_id: RunId, granted: Sequence[Row], duration_ms: int
) -> list[Claim]:
    if not granted:
        return []
    rows = await connection.fetch(_GRANT, run_id, duration_ms, rows=Rows(_GRANTED, granted))
    return sorted(map(CLAIM.read, rows), key=lambda claim: claim.partition)


async def _lock_tokens(connection: Connection, tokens: Sequence[ClaimToken]) -> list[Row]:
    return await connection.fetch(_LOCK_TOKENS, rows=_token_rows(tokens))


def _token_rows(tokens: Sequence[ClaimToken]) -> Rows:
    return Rows(_TOKEN, [(token,) for token in tokens])


def _range(wish: ClaimWish) -> tuple[str, Offset, Offset]:
    return (wish.kind.value, wish.first_offset, wish.end_offset)


def _stored_text(error: str) -> str:
    """Return a text that both databases store: PostgreSQL has no text with a zero in it."""
    return error.replace("\0", "")[:_MAX_ERROR_CHARS]
