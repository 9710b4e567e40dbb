"""`commit_blocks`, and the settling of doubt about it.

The object rows are inserted in the committing transaction, under the ids that a tombstone would
take. So of a commit and a tombstone exactly one gets in, whenever either comes.
"""

from collections.abc import Sequence

from stratalog.control.ledger import Ledger
from stratalog.control.log.answers import pack_answers, unpack_answers
from stratalog.control.log.commit_plan import CommitPlan, Head, involved, plan_commit
from stratalog.control.log.errors import (
    AnswersForgottenError,
    CommitMismatchError,
    ObjectsKnownError,
)
from stratalog.control.log.model import (
    BATCHES,
    BLOCK_ROW,
    HEADS,
    BlockToCommit,
    CommitAnswer,
    WriteTier,
)
from stratalog.control.log.producers import read_producers, write_producers
from stratalog.control.objects.errors import BarredObjectError
from stratalog.control.objects.ledger import insert_tombstones
from stratalog.control.objects.model import OBJECT_ID, OBJECTS, ObjectKind, ObjectState
from stratalog.control.sql.database import Connection, Rows, as_uuid
from stratalog.control.sql.table import rows_from
from stratalog.control.writers.counting import check_count, count_commit
from stratalog.control.writers.model import CommitCount
from stratalog.ids import ObjectId, TopicPartition

_TIERS = {tier.value: tier for tier in WriteTier}
_POSITION = HEADS.shape("topic_id", "partition", position="integer")
_HEAD = HEADS.shape(
    "topic_id", "partition", "high_watermark", added_bytes="bigint", commit_ms="bigint"
)
_OBJECT = OBJECTS.shape("object_id", "key", "state", "size_bytes", "broker_id", "answers")
_INSERT_OBJECTS = OBJECTS.insert(
    _OBJECT,
    kind="$1",
    committed_ms="{now_ms}",
    marked_ms="CASE WHEN r.state = $2 THEN {now_ms} END",
)
_INSERT_ROWS = BATCHES.insert(BLOCK_ROW, stamped="false")
_LOCK_HEADS = """
    SELECT r.position, heads.high_watermark, heads.last_commit_ms, heads.leader_epoch
    FROM {rows}
    JOIN heads ON heads.topic_id = r.topic_id AND heads.partition = r.partition
    ORDER BY heads.topic_id, heads.partition {for_update_of heads}
"""
_READ_STARTS = """
    SELECT r.position, partitions.log_start, partitions.write_tier, (SELECT {now_ms})
    FROM {rows}
    JOIN partitions ON partitions.topic_id = r.topic_id AND partitions.partition = r.partition
    JOIN topics ON topics.topic_id = partitions.topic_id AND topics.deleted_ms IS NULL
"""
_MOVE_HEADS = """
    UPDATE heads
    SET high_watermark = r.high_watermark,
        size_bytes = heads.size_bytes + r.added_bytes,
        last_commit_ms = r.commit_ms
    FROM {rows} WHERE heads.topic_id = r.topic_id AND heads.partition = r.partition
"""


class CommitOperations(Ledger):
    async def commit_blocks(
        self, blocks: Sequence[BlockToCommit], count: CommitCount | None = None
    ) -> list[list[CommitAnswer]]:
        """Commit uploaded objects in one transaction: an answer per batch, in the blocks' order.

        With a `count` it is one of the commits of an announced writer: it raises
        `WriterRefusedError` if the control plane has forgotten an earlier one of them, or if the
        cluster is halted. A commit that took effect already is answered again from the answers that
        it left behind. Raises `BarredObjectError` if one of the objects was given up before.
        """
        try:
            return await self._database.write(lambda connection: _commit(connection, blocks, count))
        except ObjectsKnownError:
            pass
        answers = await self._database.write(lambda connection: _lock_stored(connection, blocks))
        if answers is None:
            raise BarredObjectError(
                f"object {blocks[0].key}: its commit was given up: put its batches into another"
            )
        return answers

    async def resolve_commit(
        self, blocks: Sequence[BlockToCommit], count: CommitCount | None = None
    ) -> list[list[CommitAnswer]] | None:
        """Settle the doubt about a `commit_blocks` whose outcome is unknown.

        Returns its answers if it took effect. Otherwise it bars the objects, so that the commit
        cannot take effect any more, and returns None. Raises `AnswersForgottenError` if it took
        effect longer ago than answers are kept, and `WriterRefusedError` if the control plane went
        back: it may have forgotten the commit.
        """

        async def work(connection: Connection) -> list[list[CommitAnswer]] | None:
            if count is not None:
                await check_count(connection, count)
            # Waits for a commit that is still under way on the server.
            await insert_tombstones(connection, {b.object_id: b.key for b in blocks})
            return await _lock_stored(connection, blocks)

        return await self._database.write(work)

    async def forget_answers(self, *, older_than_ms: int) -> int:
        """Drop answers of commits of at least this age, at which no doubt remains."""

        async def work(connection: Connection) -> int:
            forgotten = await connection.execute(
                "UPDATE objects SET answers = NULL"
                " WHERE answers IS NOT NULL AND committed_ms < {now_ms} - $1",
                older_than_ms,
            )
            await connection.execute(
                "DELETE FROM objects WHERE state = $1 AND answers IS NULL", ObjectState.GONE.value
            )
            return forgotten

        return await self._database.write(work)


async def _commit(
    connection: Connection, blocks: Sequence[BlockToCommit], count: CommitCount | None
) -> list[list[CommitAnswer]]:
    plan = await plan_blocks(connection, blocks)
    await write_plan(connection, blocks, plan, keep_answers=True)
    if count is not None:
        # After the objects: a commit that took effect before, and counted, raises there.
        await count_commit(connection, count)
    return plan.answers


async def plan_blocks(connection: Connection, blocks: Sequence[BlockToCommit]) -> CommitPlan:
    """Lock the heads of the blocks' partitions, and plan the commit."""
    partitions, producer_keys = involved(blocks)
    heads, now_ms = await _lock_and_read(connection, sorted(partitions))
    producers = await read_producers(connection, producer_keys)
    return plan_commit(blocks, heads, producers, now_ms)


async def write_plan(
    connection: Connection,
    blocks: Sequence[BlockToCommit],
    plan: CommitPlan,
    *,
    keep_answers: bool,
) -> None:
    """Write the plan. Raises `ObjectsKnownError` if one of the objects has a row already.

    Answers are kept for callers that settle a doubt with `resolve_commit`.
    """
    await _write_objects(connection, blocks, plan, keep_answers=keep_answers)
    await _write_rows(connection, plan)
    await _write_heads(connection, plan)
    await write_producers(connection, plan.producers)


async def _lock_and_read(
    connection: Connection, partitions: list[TopicPartition]
) -> tuple[dict[TopicPartition, Head], int]:
    """Lock the heads; then, by a new snapshot, read the rest and the time."""
    # Positions come back instead of keys, because keys are dear to decode and to look up.
    source = Rows(_POSITION, [(*key, i) for i, key in enumerate(partitions)])
    locked = await connection.fetch(_LOCK_HEADS, rows=source)
    boundaries = await connection.fetch(_READ_STARTS, rows=source)
    starts = {row[0]: row for row in boundaries}
    heads: dict[TopicPartition, Head] = {}
    for position, high_watermark, last_commit_ms, leader_epoch in locked:
        if position in starts:
            _, log_start, write_tier, _ = starts[position]
            heads[partitions[position]] = Head(
                high_watermark, last_commit_ms, leader_epoch, log_start, _TIERS[write_tier]
            )
    return heads, boundaries[0][3] if boundaries else 0


async def _write_objects(
    connection: Connection,
    blocks: Sequence[BlockToCommit],
    plan: CommitPlan,
    *,
    keep_answers: bool,
) -> None:
    rows = [
        (
            block.object_id,
            block.key,
            (ObjectState.MARKED if block.object_id in plan.dead else ObjectState.LIVE).value,
            block.size_bytes,
            block.broker_id,
            pack_answers(answers) if keep_answers else None,
        )
        for block, answers in zip(blocks, plan.answers, strict=True)
    ]
    inserted = await connection.execute(
        f"{_INSERT_OBJECTS} ON CONFLICT (object_id) DO NOTHING",
        ObjectKind.BLOCK.value,
        ObjectState.MARKED.value,
        rows=Rows(_OBJECT, sorted(rows)),
    )
    if inserted != len(blocks):
        raise ObjectsKnownError


async def _write_rows(connection: Connection, plan: CommitPlan) -> None:
    if not plan.rows:
        return
    await connection.execute_each(_INSERT_ROWS, rows_from(BLOCK_ROW, plan.rows))


async def _write_heads(connection: Connection, plan: CommitPlan) -> None:
    if not plan.heads:
        return
    heads = Rows(_HEAD, [(*key, *change) for key, change in plan.heads.items()])
    await connection.execute_each(_MOVE_HEADS, heads)


async def _lock_stored(
    connection: Connection, blocks: Sequence[BlockToCommit]
) -> list[list[CommitAnswer]] | None:
    """The same as `_stored`, in a transaction that ends when the earlier commit is on the standbys.

    A commit is in doubt, too, when PostgreSQL has written it and its synchronous standby has not. A
    transaction that only read it would end at once, and records would be acknowledged that a
    fail-over loses. A lock of a row is written to the log, behind that commit, and waited for.
    """
    await connection.fetch(
        "SELECT objects.object_id FROM {rows} JOIN objects ON objects.object_id = r.object_id"
        " {for_update_of objects}",
        rows=Rows(OBJECT_ID, sorted((block.object_id,) for block in blocks)),
    )
    return await _stored(connection, blocks)


async def _stored(
    connection: Connection, blocks: Sequence[BlockToCommit]
) -> list[list[CommitAnswer]] | None:
    """The answers of an earlier commit of just these blocks, or None if they are barred."""
    rows = await connection.fetch(
        "SELECT objects.object_id, objects.state, objects.answers FROM {rows}"
        " JOIN objects ON objects.object_id = r.object_id",
        rows=Rows(OBJECT_ID, [(block.object_id,) for block in blocks]),
    )
    known = {ObjectId(as_uuid(row[0])): row[2] for row in rows if row[1] != ObjectState.BARRED}
    if rows and not known:
        return None
    if len(known) != len(blocks):
        keys = ", ".join(block.key for block in blocks if block.object_id not in known)
        raise CommitMismatchError(f"not committed together with the others: {keys}")
    if any(packed is None for packed in known.values()):
        raise AnswersForgottenError(f"object {blocks[0].key}: committed, its answers are gone")
    return [unpack_answers(known[block.object_id]) for block in blocks]
