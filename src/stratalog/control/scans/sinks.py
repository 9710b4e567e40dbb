"""`commit_sink`: blocks that are committed once, however often the same batch is written.

A sink's row has its last batch. The committing transaction moves it before all else, so that its
lock makes committers of the same sink follow each other, and the second finds the batch there. This
settles doubt, too: after an unknown outcome the commit is repeated, with the same objects or with
others, and takes effect exactly once. Rows are never removed, because a stream may be restarted
from an old checkpoint at any time.

A stream's first batch has the number 0 whatever its checkpoint, so a note also has the origin of
the batch: a repeat comes from the same checkpoint.

The number of records distinguishes a repeat from other rows under the same batch number. Behind a
stream's first batch it does not count: a stream that starts over begins with batch 0, so an equal
batch number is a repeat. Its sources may have lost records since, or a table that it joins may have
won some.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from stratalog.control.ledger import Ledger
from stratalog.control.log.commits import plan_blocks, write_plan
from stratalog.control.log.errors import CommitMismatchError, ObjectsKnownError
from stratalog.control.log.model import BatchToCommit, BlockToCommit, CommitOutcome
from stratalog.control.objects.errors import BarredObjectError
from stratalog.control.objects.model import OBJECT_ID, ObjectState
from stratalog.control.scans.errors import SinkBehindError, SinkRefusedError
from stratalog.control.scans.model import SINKS, SinkOrigin, SinkOutcome
from stratalog.control.sql.database import Connection, Rows
from stratalog.control.writers.counting import count_commit
from stratalog.control.writers.model import CommitCount
from stratalog.ids import kafka_base64

log = logging.getLogger(__name__)

_REASONS = {
    CommitOutcome.UNKNOWN_PARTITION: "it does not exist (any more)",
    CommitOutcome.WRONG_TIER: "it is not written to in blocks: migrate the topic first",
}

_MOVED = SINKS.overwrite("batch_id", "committed_ms", "records", "counted_batch_id", "origin")
# Not with {rows}: there, SQLite cuts a text at its first NUL, and one sink would move another.
_ADVANCE = f"""
    INSERT INTO sinks (sink_id, batch_id, committed_ms, records, counted_batch_id, origin)
    VALUES ($1, $2, {{now_ms}}, $3, $2, $4)
    ON CONFLICT (sink_id) DO UPDATE SET {_MOVED}
    WHERE sinks.batch_id < excluded.batch_id
"""


class _SinkBatch(NamedTuple):
    sink_id: str
    batch_id: int
    records: int
    origin: SinkOrigin | None


class SinkOperations(Ledger):
    async def commit_sink(
        self,
        sink_id: str,
        batch_id: int,
        blocks: Sequence[BlockToCommit],
        *,
        from_stream: bool = False,
        origin: SinkOrigin | None = None,
        count: CommitCount | None = None,
    ) -> SinkOutcome:
        """Commit uploaded objects once for this batch of this sink, all of them or none.

        One transaction with the note of the sink's last batch, which is kept for ever. May be
        repeated whenever its outcome is not known. Raises `SinkBehindError` if the sink has taken a
        later batch, or this one from a stream of another `origin` or with another number of records
        (if it is `from_stream`, only if it is the first and has more), `SinkRefusedError` if a
        partition does not exist or is not written to in blocks, and `BarredObjectError` if the
        sweeper has given up one of the objects. `count` is that of `commit_blocks`.
        """
        batch = _SinkBatch(sink_id, batch_id, _count_records(blocks), origin)
        try:
            return await self._database.write(
                partial(_commit, batch=batch, blocks=blocks, from_stream=from_stream, count=count)
            )
        except ObjectsKnownError:
            error = await self._database.read(partial(_explain, blocks=blocks))
        raise error

    async def last_sink_batch(self, sink_id: str) -> int | None:
        """Return the number of the batch that the sink has taken last. It only grows."""
        rows = await self._database.read(
            lambda connection: connection.fetch(
                "SELECT batch_id FROM sinks WHERE sink_id = $1", sink_id
            )
        )
        return int(rows[0][0]) if rows else None


async def _commit(
    connection: Connection,
    batch: _SinkBatch,
    blocks: Sequence[BlockToCommit],
    from_stream: bool,
    count: CommitCount | None,
) -> SinkOutcome:
    if not await _advance(connection, batch):
        await _check_repeat(connection, batch, from_stream)
        return SinkOutcome.REPEATED
    if blocks:
        plan = await plan_blocks(connection, blocks)
        for block, answers in zip(blocks, plan.answers, strict=True):
            for part, answer in zip(block.batches, answers, strict=True):
                if answer.outcome is not CommitOutcome.ACCEPTED:
                    raise _refusal(batch, part, answer.outcome)
        await write_plan(connection, blocks, plan, keep_answers=False)
        if count is not None:
            await count_commit(connection, count)
    return SinkOutcome.COMMITTED


def _count_records(blocks: Sequence[BlockToCommit]) -> int:
    return sum(part.last_offset_delta + 1 for block in blocks for part in block.batches)


async def _advance(connection: Connection, batch: _SinkBatch) -> bool:
    """Lock the sink's row, and move it to this batch unless it is there or beyond."""
    origin = None if batch.origin is None else str(batch.origin)
    moved = await connection.execute(_ADVANCE, batch.sink_id, batch.batch_id, batch.records, origin)
    return moved > 0


async def _check_repeat(connection: Connection, batch: _SinkBatch, from_stream: bool) -> None:
    [(last_batch, records, counted_batch, origin)] = await connection.fetch(
        "SELECT batch_id, records, counted_batch_id, origin FROM sinks WHERE sink_id = $1",
        batch.sink_id,
    )
    if last_batch != batch.batch_id:
        raise SinkBehindError(
            f"sink {batch.sink_id!r} has taken batch {last_batch} already, and this is batch"
            f" {batch.batch_id}: a stream that starts over with a new checkpoint needs a sinkId of"
            " its own"
        )
    if batch.origin is not None and origin is not None and _is_other(batch.origin, origin):
        raise SinkBehindError(
            f"sink {batch.sink_id!r} has taken batch {last_batch} already, from another checkpoint"
            f" ({origin}; this is {batch.origin}): nothing was written. A stream that starts over"
            " with a new checkpoint needs a sinkId of its own. If the checkpoint was only moved,"
            " give the option checkpointId the id in its file `metadata`"
        )
    if counted_batch != last_batch or batch.records == records:
        return
    found = (
        f"sink {batch.sink_id!r} has taken batch {last_batch} already, with {records} records,"
        f" and now it has {batch.records}: nothing was written."
    )
    if not from_stream or (batch.batch_id == 0 and batch.records > records):
        raise SinkBehindError(
            f"{found} Other rows need a batchId above {last_batch}, and a stream that starts over"
            " with a new checkpoint needs a sinkId of its own"
        )
    log.warning("%s A stream's batch is written once, as it was the first time.", found)


def _is_other(origin: SinkOrigin, noted: str) -> bool:
    kind, _, name = noted.partition(":")
    return kind == origin.kind and name != origin.name


def _refusal(batch: _SinkBatch, part: BatchToCommit, outcome: CommitOutcome) -> SinkRefusedError:
    reason = _REASONS.get(outcome, f"the answer is {outcome.name}")
    return SinkRefusedError(
        f"batch {batch.batch_id} of sink {batch.sink_id!r} was not written: partition"
        f" {part.partition} of topic {kafka_base64(part.topic_id)} cannot take it: {reason}"
    )


async def _explain(
    connection: Connection, blocks: Sequence[BlockToCommit]
) -> BarredObjectError | CommitMismatchError:
    """Explain why objects have rows although their batch was never committed."""
    rows = await connection.fetch(
        "SELECT objects.key, objects.state FROM {rows}"
        " JOIN objects ON objects.object_id = r.object_id",
        rows=Rows(OBJECT_ID, [(block.object_id,) for block in blocks]),
    )
    for key, state in rows:
        if state != ObjectState.BARRED:
            return CommitMismatchError(
                f"object {key} was committed before, by another batch: put these into another"
            )
    key = rows[0][0] if rows else blocks[0].key
    return BarredObjectError(
        f"object {key}: the sweeper has given it up, because no lease was held since before its"
        " upload: write the batch again"
    )
