"""The guards of the protocols, and how to take each of them out of the real code.

A guard is worth its line only if something goes wrong without it. Each entry removes one, and the
simulation should notice within `MOST_SEEDS` seeds. `noticed_by` is the first seed that did, as
`python -m tests.simulation --guards` found it; `make test` runs that seed again.

Some guards matter in a moment that no load makes. Such a guard has a scenario, which changes the
cluster only while the guard is removed, so that the seeds of the loads stay as they are. With the
guard in place the scenario breaks no promise, and `make test` checks that, too.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from tests.simulation import nodes
from tests.simulation.replacing import replaced

from stratalog.block import reader as block_reader
from stratalog.block.missing_sequences import MissingSequences
from stratalog.block.writer import BlockWriter
from stratalog.control.log import commits, reads, trims
from stratalog.control.log.errors import CommitMismatchError, ObjectsKnownError
from stratalog.control.log.model import SPLIT_ROW, CommitOutcome, FoundBatches, Span
from stratalog.control.log.partitions import read_states
from stratalog.control.log.sequences import Producer
from stratalog.control.objects.ledger import ObjectsLedger
from stratalog.control.pipeline import claims, splits
from stratalog.control.pipeline.model import SplitOutcome
from stratalog.control.segments import chain
from stratalog.control.segments.lifecycle import SegmentOperations
from stratalog.control.sql import sqlite
from stratalog.control.sql.database import Connection, Rows
from stratalog.control.sql.table import rows_from
from stratalog.janitor.sweeper import Sweeper
from stratalog.opening import claim
from stratalog.pipeline import driver
from stratalog.pipeline.kinds import segment_finisher
from stratalog.segment import log_batches

MOST_SEEDS = 100

Removal = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Guard:
    name: str
    meaning: str
    remove: Removal
    noticed_by: int | None
    """The first seed that notices the removal. None if the first `MOST_SEEDS` seeds do not."""
    scenario: Removal = nullcontext
    """Makes the moment in which the guard matters. It takes no other guard away."""

    @contextmanager
    def removed(self) -> Iterator[None]:
        """Play the scenario without the guard."""
        with self.scenario(), self.remove():
            yield


def without(owner: Any, name: str, value: Any) -> Removal:
    return lambda: replaced(owner, name, value)


def without_sql(condition: str, instead: str = "") -> Removal:
    """Statements lose a condition. Parameters that only the condition used must stay mentioned.

    White space does not count.
    """
    sought = " ".join(condition.split())

    @contextmanager
    def removed() -> Iterator[None]:
        prepare = sqlite._prepare

        def changed(sql: str, args: tuple[Any, ...], rows: Rows | None) -> Any:
            return prepare(" ".join(sql.split()).replace(sought, instead), args, rows)

        with replaced(sqlite, "_prepare", changed):
            yield

    return removed


def both(*removals: Removal) -> Removal:
    @contextmanager
    def removed() -> Iterator[None]:
        with ExitStack() as stack:
            for removal in removals:
                stack.enter_context(removal())
            yield

    return removed


# Replacements, in the order of the list below.


async def _resolve_without_tombstone(self: Any, blocks: Any) -> Any:
    try:
        return await self._database.read(lambda connection: commits._stored(connection, blocks))
    except CommitMismatchError:
        return None


async def _bar_nothing(self: Any, objects: Mapping[Any, str]) -> set[Any]:
    found = await self.sizes([*objects])
    return {object_id for object_id in objects if object_id not in found}


async def _bar_no_segment(self: Any, segments: Mapping[Any, Any]) -> set[Any]:
    known = await self.known([*segments])
    return {segment_id for segment_id in segments if segment_id not in known}


async def _write_objects_unchecked(
    connection: Connection, blocks: Any, plan: Any, *, keep_answers: bool
) -> None:
    try:
        await _write_objects(connection, blocks, plan, keep_answers=keep_answers)
    except ObjectsKnownError:
        return


_write_objects = commits._write_objects


async def _count_unchecked(connection: Connection, count: Any) -> None:
    await connection.execute("UPDATE writers SET commits = commits + 1 WHERE tag = $1", count.tag)


def _take_everything(
    self: Any, epoch: int, base_sequence: int, last_offset_delta: int, offset: int, now_ms: int
) -> CommitOutcome:
    self._packed = b""
    outcome = _take(self, epoch, base_sequence, last_offset_delta, offset, now_ms)
    assert isinstance(outcome, CommitOutcome)
    return outcome


_take = Producer.take


async def _commit_in_any_order(self: Any) -> None:
    while True:
        while not self._queue:
            if self._closed:
                return
            self._queued.clear()
            await self._queued.wait()
        await asyncio.wait(
            [one.uploaded for one in self._queue], return_when=asyncio.FIRST_COMPLETED
        )
        ready = next(one for one in self._queue if one.uploaded.done())
        self._queue.remove(ready)
        error = ready.uploaded.result()
        if error is not None:
            self._fail(ready, error)
        else:
            await self._commit_or_fail([ready])


async def _in_no_row(connection: Connection, boundaries: Any) -> bool:
    return False


async def _count_rows_as_before(connection: Connection, segment: Any, state: Any) -> Any:
    """The plan goes on looking for rows across the end: the guard is the look under the lock."""
    rows = await _count_rows(connection, segment, state)
    return rows._replace(straddles=await _ends_in_row(connection, segment, state))


_count_rows, _ends_in_row = chain._count_rows, chain._ends_in_row


async def _none_found(control: Any, unclaimed: Any) -> int:
    return 0


async def _judge_claims_alone(connection: Connection, parts: Any) -> Any:
    held = await claims.lock_claims(connection, {key: one.token for key, one in parts.items()})
    return {key: SplitOutcome.CLAIM_LOST for key in parts if key not in held}


async def _replace_whatever_is_there(connection: Connection, parts: Any) -> None:
    for part in parts:
        for row in part.old_rows:
            await connection.execute(
                "DELETE FROM batches WHERE topic_id = $1 AND partition = $2 AND last_offset = $3",
                row.topic_id,
                row.partition,
                row.last_offset,
            )
    new = [row for part in parts for row in part.new_rows]
    await connection.execute(splits._INSERT_ROWS, rows=rows_from(SPLIT_ROW, new))


async def _all_claims(connection: Connection, tokens: Mapping[Any, Any]) -> set[Any]:
    return set(tokens)


async def _yes(*_: Any) -> bool:
    return True


async def _no(*_: Any) -> bool:
    return False


def _whoever_has_it(standing: Any, **rest: Any) -> Any:
    return _judge(standing._replace(run_id=None), **rest)


_judge = claims.judge


async def _horizon_without_leases(self: Any) -> int:
    return int(self._clock.now_ms() - self._orphan_age_ms)


async def _find_in_two_snapshots(
    self: Any, spans: Sequence[Span], *, max_bytes: int | None = None
) -> list[FoundBatches]:
    partitions = [span.topic_partition for span in spans]
    states = await self._database.read(lambda one: read_states(one, partitions))

    async def earlier(connection: Connection, wanted: Any) -> Any:
        return states

    async def find(connection: Connection) -> list[FoundBatches]:
        with replaced(reads, "read_states", earlier):
            return await reads._find(connection, spans, max_bytes)

    found: list[FoundBatches] = await self._database.read(find)
    return found


async def _claim_anywhere(control: Any, store: Any) -> Any:
    await claim.claim_anew(control, store)
    return await claim.claim_store(control, store)


async def _nothing(*_: Any) -> None:
    return None


def _no_crc(*_: Any) -> None:
    return None


_LEASE_OF_OBJECTS = """
    AND marked_ms < COALESCE(
        (SELECT MIN(started_ms) FROM leases WHERE expires_ms > {now_ms}), marked_ms + 1
    )
"""
_LEASE_OF_SEGMENTS = """
    AND changed_ms < COALESCE(
        (SELECT MIN(started_ms) FROM leases WHERE expires_ms > {now_ms}), changed_ms + 1
    )
"""

GUARDS = (
    Guard(
        "tombstone in doubt",
        "A commit whose outcome is unknown is barred before its producers hear that it failed.",
        # The count of commits is a second guard: it refuses most commits that come late.
        both(
            without(commits.CommitOperations, "resolve_commit", _resolve_without_tombstone),
            without(commits, "count_commit", _count_unchecked),
        ),
        12,
    ),
    Guard(
        "commit meets tombstone",
        "A commit fails if one of its objects has a row already.",
        without(commits, "_write_objects", _write_objects_unchecked),
        1,
    ),
    Guard(
        "tombstone before sweep",
        "The sweeper bars an object without a row before it deletes it.",
        without(ObjectsLedger, "bar", _bar_nothing),
        1,
    ),
    Guard(
        "segment tombstone before sweep",
        "The sweeper bars a segment without a row before it deletes its objects.",
        without(SegmentOperations, "bar", _bar_no_segment),
        0,
    ),
    Guard(
        "sequences",
        "A batch of an idempotent producer that repeats another is not stored again.",
        without(Producer, "take", _take_everything),
        0,
    ),
    Guard(
        "missing sequences",
        "The batch after one that was given up is not the beginning of an unknown producer.",
        without(MissingSequences, "mark", lambda self, block: block),
        2,
    ),
    Guard(
        "seal order",
        "Blocks are committed in the order in which they were sealed.",
        without(BlockWriter, "_commit_in_order", _commit_in_any_order),
        14,
    ),
    Guard(
        "trim at a row's edge",
        "A new start is compared with the edges of rows under the head's lock.",
        without(trims, "lies_in_row", _in_no_row),
        1,
    ),
    Guard(
        "trim of unmoved boundaries",
        "Boundaries move only if they are where the plan found them.",
        without_sql(
            "AND partitions.log_start = r.old_log_start"
            " AND partitions.block_start = r.old_block_start"
            " AND partitions.remote_end = r.old_remote_end"
        ),
        1,
    ),
    Guard(
        "chain at a row's edge",
        "The end of a segment is compared with the edges of rows under the head's lock.",
        both(
            without(chain, "_ends_in_row", _no),
            without(chain, "_count_rows", _count_rows_as_before),
        ),
        5,
        # A run looks for finished segments before it claims a partition. Here each run has looked
        # too early, so that it splits rows under a segment that a janitor chains later.
        without(driver, "chain_finished", _none_found),
    ),
    Guard(
        "chain at unmoved boundaries",
        "A segment is chained only if the boundaries are where the plan found them.",
        without_sql(
            "AND log_start = $5 AND remote_end = $6 AND block_start = $7",
            "AND $5 >= 0 AND $6 >= 0 AND $7 >= 0",
        ),
        9,
    ),
    Guard(
        "deletion of unchained segments",
        "A segment that is chained is never deleted as unfinished.",
        without_sql("AND NOT segments.chained AND segments.state <> $1", "AND state <> $1"),
        8,
    ),
    Guard(
        "planned rows",
        "A split swaps rows only if exactly the planned ones are still there.",
        both(
            without(splits, "_judge", _judge_claims_alone),
            without(splits, "_replace", _replace_whatever_is_there),
        ),
        5,
    ),
    Guard(
        "claim of a split",
        "A split is committed only under the claim of its run.",
        without(splits, "lock_claims", _all_claims),
        13,
    ),
    Guard(
        "claim of a merge",
        "A segment is chained only under the claim of its run.",
        both(without(chain, "lock_claim", _yes), without(chain, "holds_claim", _yes)),
        8,
    ),
    Guard(
        "one claim at a time",
        "A range that one run holds is not given to another.",
        without(claims, "judge", _whoever_has_it),
        0,
    ),
    Guard(
        "grace",
        "Objects and segments are deleted some time after their mark.",
        both(
            without_sql("marked_ms <= {now_ms} - $1", "$1 >= 0"),
            without_sql("AND changed_ms <= {now_ms} - $2", "AND $2 >= 0"),
        ),
        0,
    ),
    Guard(
        "leases of readers",
        "An object that a lease may need is not deleted.",
        both(without_sql(_LEASE_OF_OBJECTS), without_sql(_LEASE_OF_SEGMENTS)),
        7,
    ),
    Guard(
        "leases of writers",
        "The sweeper leaves alone the objects of writers that hold a lease.",
        without(Sweeper, "_horizon_ms", _horizon_without_leases),
        7,
    ),
    Guard(
        "last reference",
        "An object is marked only when its last row is gone.",
        without_sql(
            "AND NOT EXISTS (SELECT 1 FROM batches WHERE batches.object_id = r.object_id)",
        ),
        0,
    ),
    Guard(
        "one snapshot",
        "Boundaries and rows of a read come from the same snapshot.",
        without(reads.ReadOperations, "find_batches", _find_in_two_snapshots),
        0,
    ),
    Guard(
        "log looked at again",
        "A merge looks for its log once more after its segment was added.",
        without(segment_finisher, "check_uploaded", _nothing),
        2,
    ),
    Guard(
        "CRC of a block",
        "The CRC of each batch is checked when a broker reads it from a block.",
        without(block_reader, "check_crc", _no_crc),
        2,
    ),
    Guard(
        "CRC of a segment",
        "The CRC of each batch is checked when a broker reads it from a segment.",
        without(log_batches._Selection, "_check_answered", _no_crc),
        38,
    ),
    Guard(
        "incarnation",
        "A broker renews the lease of its own incarnation only.",
        without_sql(
            "WHERE broker_id = $2 AND incarnation = $3", "WHERE broker_id = $2 AND $3 <> ''"
        ),
        23,
    ),
    Guard(
        "one broker per id",
        "A broker does not take the id of another that is alive.",
        without_sql("brokers.expires_ms > {now_ms}", "false"),
        0,
    ),
    Guard(
        "store without a marker",
        "A broker does not start on a store that lost its marker, or that was never claimed.",
        without(nodes, "claim_store", _claim_anywhere),
        4,
    ),
)


def guard_named(name: str) -> Guard:
    for guard in GUARDS:
        if guard.name == name:
            return guard
    names = ", ".join(guard.name for guard in GUARDS)
    raise SystemExit(f"there is no guard {name!r}; the guards are: {names}")
