"""How a finished segment becomes the next one of its partition.

As with deletions, the rows are counted on a snapshot without a lock, and one short transaction
moves the boundaries if they are still where the snapshot found them. Links of several partitions
that come together share a transaction. Rows below `block_start` do not change, and the rows that
the segment replaces leave afterwards, in chunks.

Without a claim, a split may come between, which swaps rows for others of as many bytes. So the
transaction checks under the lock that the segment still ends where a row does.
"""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from stratalog.control.errors import ControlUnavailableError
from stratalog.control.ledger import Ledger
from stratalog.control.log.boundaries import check_boundaries
from stratalog.control.log.errors import PartitionMovedError
from stratalog.control.log.model import PartitionState
from stratalog.control.log.partitions import lock_heads, read_states
from stratalog.control.log.replaced_rows import ReplacedRows
from stratalog.control.log.row_edges import lies_in_row
from stratalog.control.pipeline.claims import claim_lost, holds_claim, lock_claim
from stratalog.control.pipeline.model import ClaimToken
from stratalog.control.segments.errors import BoundaryMovedError, SegmentStateError
from stratalog.control.segments.lifecycle import begin_deletion, read_segment
from stratalog.control.segments.model import ChainOutcome, Segment, SegmentState
from stratalog.control.sql.database import Connection, Database
from stratalog.control.sql.optimistic import retry_outdated
from stratalog.control.sql.shared_writes import SharedWrites
from stratalog.errors import OutcomeUnknownError
from stratalog.ids import Entropy, Offset, SegmentId, kafka_base64

_LINKS_AT_ONCE = 4
"""Producers wait for the heads that a transaction locks."""

_MOVE = """
    UPDATE partitions SET remote_end = $1, block_start = $2
    WHERE topic_id = $3 AND partition = $4
        AND log_start = $5 AND remote_end = $6 AND block_start = $7
        AND EXISTS (
            SELECT 1 FROM topics WHERE topics.topic_id = $3 AND topics.deleted_ms IS NULL
        )
"""


class Link(NamedTuple):
    """A segment that fits, and the boundaries that chaining it moves."""

    segment: Segment
    state: PartitionState
    block_start: Offset
    replaced_bytes: int
    """Of the rows that `block_start` moves past."""


class CoveredRows(NamedTuple):
    """The rows in the block range that a segment covers, from its snapshot."""

    byte_size: int
    straddles: bool
    """True if a row begins inside the segment and ends after it."""


class ChainOperations(Ledger):
    def __init__(self, database: Database, entropy: Entropy) -> None:
        super().__init__(database, entropy)
        self._links = SharedWrites(database, most=_LINKS_AT_ONCE)
        self._replaced_rows = ReplacedRows(database)

    async def chain(
        self, segment_id: SegmentId, *, claim: ClaimToken | None = None
    ) -> ChainOutcome:
        """Make a finished segment the next one of its partition, in one transaction.

        With a claim, only while that claim is held: `ClaimLostError` otherwise.

        Moves `remote_end` behind it and, if its offsets were served by blocks until now,
        `block_start` too; their rows leave in chunks afterwards. A segment that was chained before
        is answered in the same way again. One that retention or a delete has overtaken wholly is
        not chained, and its deletion begins. Raises `BoundaryMovedError` if it does not
        fit at `remote_end`, and `SegmentStateError` if it is not finished.
        """
        return await retry_outdated(
            lambda: self._try_to_chain(segment_id, claim),
            refusal=f"segment {segment_id}: the boundaries of its partition keep moving: try again",
        )

    async def _try_to_chain(self, segment_id: SegmentId, claim: ClaimToken | None) -> ChainOutcome:
        plan = await self._database.read(partial(_plan, segment_id=segment_id, claim=claim))
        if plan is ChainOutcome.OVERTAKEN:
            await self._database.write(partial(_give_up, segment_id=segment_id))
            return plan
        if isinstance(plan, Link):
            key = plan.segment.topic_partition
            await self._links.write(key, partial(_apply, link=plan, claim=claim))
            # The segment serves its offsets by now, whatever becomes of the rows: retention removes
            # the rows that stay behind.
            with suppress(ControlUnavailableError, OutcomeUnknownError):
                await self._replaced_rows.remove(key)
        return ChainOutcome.CHAINED


async def _plan(
    connection: Connection, segment_id: SegmentId, claim: ClaimToken | None
) -> Link | ChainOutcome:
    segment = await read_segment(connection, segment_id)
    if segment is not None and segment.chained:
        return ChainOutcome.CHAINED
    if segment is None or segment.state is not SegmentState.COPY_FINISHED:
        raise SegmentStateError(
            f"segment {segment_id} cannot be chained: "
            + ("nothing is known of it" if segment is None else f"it is {segment.state.name}")
        )
    states = await read_states(connection, [segment.topic_partition])
    state = states.get(segment.topic_partition)
    if state is None or segment.last_offset < state.log_start:
        return ChainOutcome.OVERTAKEN
    # Here, too, because a run that took the range over may have moved the boundaries already.
    if claim is not None and not await holds_claim(connection, segment.topic_partition, claim):
        raise claim_lost(segment.topic_partition)
    return plan_link(segment, state, await _count_rows(connection, segment, state))


async def _count_rows(
    connection: Connection, segment: Segment, state: PartitionState
) -> CoveredRows:
    [(byte_size,)] = await connection.fetch(
        "SELECT SUM(byte_size) FROM batches WHERE topic_id = $1 AND partition = $2"
        " AND last_offset >= $3 AND last_offset <= $4",
        *segment.topic_partition,
        state.block_start,
        segment.last_offset,
    )
    return CoveredRows(int(byte_size or 0), await _ends_in_row(connection, segment, state))


async def _ends_in_row(connection: Connection, segment: Segment, state: PartitionState) -> bool:
    # Rows below the block range wait for their deletion.
    end = max(segment.end_offset, state.block_start)
    return await lies_in_row(connection, [(segment.topic_partition, end)])


def plan_link(segment: Segment, state: PartitionState, rows: CoveredRows) -> Link:
    """Where the boundaries move. Raises `BoundaryMovedError` if the segment does not fit."""
    if not _fits(segment, state):
        raise _moved(segment, f"the next one of the partition begins at {state.remote_end}")
    if state.remote_end < state.block_start:
        if segment.end_offset > state.block_start:
            raise _moved(segment, f"blocks serve what begins at {state.block_start}")
        return Link(segment, state, state.block_start, 0)
    if segment.end_offset > state.block_end:
        raise _moved(segment, f"blocks end at {state.block_end}")
    if segment.end_offset > state.last_stable:
        raise _moved(segment, f"a transaction is open at {state.last_stable}")
    if rows.straddles:
        raise _moved(segment, "its end lies inside a row")
    return Link(segment, state, segment.end_offset, rows.byte_size)


def _fits(segment: Segment, state: PartitionState) -> bool:
    if segment.base_offset == state.remote_end:
        return True
    # The offsets that the segment repeats were deleted after it was built: they are not read.
    return (
        segment.base_offset < state.remote_end <= segment.last_offset
        and state.log_start >= state.remote_end
    )


def _moved(segment: Segment, why: str) -> BoundaryMovedError:
    return BoundaryMovedError(
        f"segment {segment.segment_id} with offsets {segment.base_offset} to"
        f" {segment.last_offset} does not fit into partition {segment.partition} of topic"
        f" {kafka_base64(segment.topic_id)}: {why}"
    )


async def _apply(connection: Connection, link: Link, claim: ClaimToken | None) -> None:
    segment, state = link.segment, link.state
    check_boundaries(
        replace(state, remote_end=segment.end_offset, block_start=link.block_start), before=state
    )
    await lock_heads(connection, [segment.topic_partition])
    if claim is not None and not await lock_claim(connection, segment.topic_partition, claim):
        raise claim_lost(segment.topic_partition)
    if link.block_start > state.block_start and await _ends_in_row(connection, segment, state):
        raise PartitionMovedError
    moved = await connection.execute(
        _MOVE,
        segment.end_offset,
        link.block_start,
        *segment.topic_partition,
        state.log_start,
        state.remote_end,
        state.block_start,
    )
    chained = await connection.execute(
        "UPDATE segments SET chained = true, changed_ms = {now_ms}"
        " WHERE segment_id = $1 AND state = $2 AND NOT chained",
        segment.segment_id,
        SegmentState.COPY_FINISHED.value,
    )
    if not (moved and chained):
        raise PartitionMovedError
    await connection.execute(
        "UPDATE heads SET size_bytes = size_bytes + $1 WHERE topic_id = $2 AND partition = $3",
        segment.size_bytes - link.replaced_bytes,
        *segment.topic_partition,
    )


async def _give_up(connection: Connection, segment_id: SegmentId) -> None:
    # Starts only rise and topics do not return: without a lock, too, it stays overtaken.
    if not await begin_deletion(connection, [segment_id]):
        raise PartitionMovedError
