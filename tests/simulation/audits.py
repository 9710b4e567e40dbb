"""Promises that are checked at the moment something happens, independently of the code at work.

Triggers in the simulated database watch boundaries, edges of rows and claims. The far side of the
store looks at each object before it deletes it. The two commits of the pipeline are watched for
their claims.
"""

import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, TypeVar

from tests.simulation.replacing import replaced

from stratalog.block.keys import parse_block_key, parse_split_key
from stratalog.checks.remote_tier import SEGMENT_PREFIX
from stratalog.clock import Clock
from stratalog.control.pipeline import splits
from stratalog.control.pipeline.model import SplitPart
from stratalog.control.segments import chain
from stratalog.control.segments.model import SegmentState
from stratalog.control.sql.database import Connection
from stratalog.objects.store import ObjectStore
from stratalog.objects.wrapped import WrappedStore
from stratalog.segment.keys import parse_segment_key

T = TypeVar("T")

_TRIGGERS = """
CREATE TABLE simulated_violations (violation text NOT NULL);

CREATE TRIGGER boundary_went_back AFTER UPDATE ON partitions
WHEN NEW.log_start < OLD.log_start OR NEW.remote_end < OLD.remote_end
  OR NEW.block_start < OLD.block_start
BEGIN
  INSERT INTO simulated_violations VALUES (
    'promise 4: a boundary of partition ' || OLD.partition || ' went back, from '
    || OLD.log_start || ', ' || OLD.remote_end || ', ' || OLD.block_start || ' to '
    || NEW.log_start || ', ' || NEW.remote_end || ', ' || NEW.block_start);
END;

CREATE TRIGGER chain_cut_a_row AFTER UPDATE ON partitions
WHEN NEW.log_start = OLD.log_start AND NEW.block_start > OLD.block_start
  AND EXISTS (
    SELECT 1 FROM batches
    WHERE batches.topic_id = NEW.topic_id AND batches.partition = NEW.partition
      AND batches.base_offset < NEW.block_start AND batches.last_offset >= NEW.block_start)
BEGIN
  INSERT INTO simulated_violations VALUES (
    'promise 4: a chain moved block_start of partition ' || OLD.partition || ' to '
    || NEW.block_start || ', which lies inside a row');
END;

CREATE TRIGGER head_went_back AFTER UPDATE ON heads
WHEN NEW.high_watermark < OLD.high_watermark OR NEW.last_commit_ms < OLD.last_commit_ms
BEGIN
  INSERT INTO simulated_violations VALUES (
    'promise 4: the head of partition ' || OLD.partition || ' went back');
END;

CREATE TRIGGER claim_was_taken_away AFTER UPDATE ON claims
WHEN OLD.token IS NOT NULL AND NEW.token IS NOT NULL AND OLD.run_id <> NEW.run_id
  AND OLD.expires_ms > now_ms()
BEGIN
  INSERT INTO simulated_violations VALUES (
    'promise 6: two runs held a claim on partition ' || OLD.partition || ' at once');
END;
"""
_CHANGES = ("put", "put_stream", "copy", "delete")
_LEASED = "EXISTS (SELECT 1 FROM leases WHERE started_ms <= ? AND expires_ms > ?)"


class Audit:
    """Collects violations; looks at the database past every transaction."""

    def __init__(self, raw: sqlite3.Connection, clock: Clock, grace_ms: int) -> None:
        self.violations: list[str] = []
        self._deleted: set[str] = set()
        """Ids of objects and segments that were deleted rightly. A late upload may bring one of
        their keys back, after the row was forgotten, and a second deleter takes it."""
        self._clock = clock
        self.grace_ms = grace_ms
        self._raw = raw
        self._newest: sqlite3.Connection | None = None
        """The newest database while an older one stands in for it: deletions go by this one."""
        self._raw.executescript(_TRIGGERS)

    def finish(self) -> list[str]:
        self._collect()
        return self.violations

    def _collect(self) -> None:
        rows = self._raw.execute("DELETE FROM simulated_violations RETURNING violation").fetchall()
        self.violations += [row[0] for row in rows]

    @contextmanager
    def beside_older(self, newest: bytes) -> Iterator[None]:
        """Go by the `newest` content of the database while an older one stands in for it."""
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.deserialize(newest)
            self._newest = connection
            yield
            self._newest = None
            self._collect()

    def deleting(self, key: str) -> None:
        """Object `key` is there, and is about to be deleted."""
        object_id = parse_block_key(key) or parse_split_key(key)
        segment = parse_segment_key(key, SEGMENT_PREFIX)
        reason: str | None = None
        owner = key
        if object_id is not None:
            owner = str(object_id)
            reason = self._object_problem(owner)
        elif segment is not None:
            owner = str(segment.segment_id)
            reason = self._segment_problem(owner)
        if reason is None:
            self._deleted.add(owner)
        elif owner not in self._deleted:
            self.violations.append(f"promise 5: {key} was deleted, and {reason}")

    @property
    def _truth(self) -> sqlite3.Connection:
        return self._newest or self._raw

    def _object_problem(self, object_id: str) -> str | None:
        row = self._truth.execute(
            "SELECT state, marked_ms FROM objects WHERE object_id = ?", (object_id,)
        ).fetchone()
        if row is None:
            return "has no tombstone"
        state, marked_ms = row
        if state == "live":
            return "is referred to"
        return self._too_early(marked_ms) if state == "marked" else None

    def _segment_problem(self, segment_id: str) -> str | None:
        row = self._truth.execute(
            "SELECT state, changed_ms, broker_id, size_bytes FROM segments WHERE segment_id = ?",
            (segment_id,),
        ).fetchone()
        if row is None:
            return "has no tombstone"
        state, changed_ms, broker_id, size_bytes = row
        if state != SegmentState.DELETE_STARTED.value:
            return "its segment was not given up"
        is_tombstone = broker_id == -1 and size_bytes == 0
        return None if is_tombstone else self._too_early(changed_ms)

    def _too_early(self, marked_ms: int) -> str | None:
        now_ms = self._clock.now_ms()
        if marked_ms > now_ms - self.grace_ms:
            return f"its grace of {self.grace_ms} ms had {now_ms - marked_ms} ms"
        [leased] = self._truth.execute(f"SELECT {_LEASED}", (marked_ms, now_ms)).fetchone()
        return "an older lease is alive" if leased else None

    @contextmanager
    def of_holders(self) -> Iterator[None]:
        """Watch the commits of the pipeline for claims that their run does not hold."""
        replace, apply = splits._replace, chain._apply

        async def audited_replace(connection: Connection, parts: Sequence[SplitPart]) -> None:
            for part in parts:
                await self._check_holder(connection, part.token, "a split")
            await replace(connection, parts)

        async def audited_apply(connection: Connection, link: Any, claim: Any) -> None:
            await apply(connection, link, claim)
            if claim is not None:
                await self._check_holder(connection, claim, "a merge")

        with (
            replaced(splits, "_replace", audited_replace),
            replaced(chain, "_apply", audited_apply),
        ):
            yield

    async def _check_holder(self, connection: Connection, token: Any, what: str) -> None:
        held = await connection.fetch(
            "SELECT 1 FROM claims WHERE token = $1 AND expires_ms > {now_ms}", token
        )
        if not held:
            self.violations.append(f"promise 6: {what} was committed without its claim")


class AuditedStore(WrappedStore):
    """The far side of the store, where each deletion is looked at, and each change of a store that
    stands in the place of the cluster's."""

    def __init__(self, inner: ObjectStore, holds: Callable[[str], bool], audit: Audit) -> None:
        super().__init__(inner)
        self._home = inner
        self._holds = holds
        self._audit = audit

    def go_to(self, store: ObjectStore) -> ObjectStore:
        """Let another store stand here, and return the one that stood here before."""
        before, self._inner = self._inner, store
        return before

    async def _around(self, operation: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        if operation in _CHANGES and self._inner is not self._home:
            self._audit.violations.append(
                f"wrong-store: {operation} {key} reached a store that is not the cluster's"
            )
        return await call()

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            if self._inner is self._home and self._holds(key):
                self._audit.deleting(key)
        await super().delete(keys)
