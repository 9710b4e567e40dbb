"""The steps of the janitor, in the order in which it runs them.

Each step is safe to run twice, to run on several brokers at once, and to cut off anywhere.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from stratalog.block.witness import WITNESS_AGE_MS, delete_old_witnesses
from stratalog.clock import Clock
from stratalog.control.plane import ControlPlane
from stratalog.janitor.deletion import delete_marked, purge_topics
from stratalog.janitor.retention import RetentionOf, enforce_retention
from stratalog.janitor.segment_deletion import clear_unfinished, delete_doomed
from stratalog.janitor.segment_sweeper import SegmentSweeper
from stratalog.janitor.sweeper import Sweeper
from stratalog.objects.expiry import delete_older
from stratalog.objects.store import ObjectStore
from stratalog.opening.claim import check_store
from stratalog.opening.segment_store import segments_role
from stratalog.recovery.deletion_notes import DELETIONS_PREFIX, NOTE_AGE_MS
from stratalog.segment.stores import SegmentStores
from stratalog.settings import DAY_MS, JanitorSettings

_WRITER_AGE_MS = WITNESS_AGE_MS + DAY_MS
"""Writers that ended longer ago are forgotten. Garbage that a writer left is swept within hours, as
long as any broker or pipeline runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Premises:
    """The control plane and the stores that a janitor keeps clean, and the rules for it."""

    control: ControlPlane
    store: ObjectStore
    """The store of the blocks."""
    clock: Clock
    segments: SegmentStores
    sweeper: Sweeper
    segment_sweeper: SegmentSweeper
    retention_of: RetentionOf
    settings: JanitorSettings
    offsets_retention_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    name: str
    """As metrics and log lines call the step."""
    run: Callable[[Premises], Awaitable[int]]
    """Returns the number of rows or objects that were removed."""
    failure_means: str
    """The consequence of a failure, as a clause that ends a log line."""
    takes_objects: bool = False
    """True if the step removes objects and segments of the store, not rows."""
    goes_by: tuple[str, ...] = ()
    """The settings that the step goes by. A process that was given others leaves the step out."""
    brokers_only: bool = False
    """True if the step removes rows that only brokers use, and is left to them."""


async def _enforce_retention(at: Premises) -> int:
    return await enforce_retention(at.control, at.retention_of, chunk_rows=at.settings.chunk_rows)


async def _purge_topics(at: Premises) -> int:
    return await purge_topics(
        at.control,
        window_ms=at.settings.deleted_topic_window_ms,
        chunk_rows=at.settings.chunk_rows,
    )


async def _delete_marked(at: Premises) -> int:
    # Rows may name objects of another store, if this one, or the control plane, is a stranger.
    await check_store(at.control, at.store)
    return await delete_marked(
        at.control,
        at.store,
        grace_ms=at.settings.grace_ms + at.settings.backup_window_ms,
        chunk_rows=at.settings.chunk_rows,
    )


async def _clear_unfinished(at: Premises) -> int:
    return await clear_unfinished(
        at.control,
        older_than_ms=at.settings.unfinished_age_ms,
        chunk_rows=at.settings.chunk_rows,
    )


async def _delete_segments(at: Premises) -> int:
    own = at.segments.own
    await check_store(at.control, own, segments_role(at.store, own))
    return await delete_doomed(
        at.control.segments,
        at.segments,
        grace_ms=at.settings.grace_ms,
        window_ms=at.settings.backup_window_ms,
        chunk_rows=at.settings.chunk_rows,
    )


async def _sweep(at: Premises) -> int:
    return (await at.sweeper.sweep()).deleted


async def _sweep_segments(at: Premises) -> int:
    return (await at.segment_sweeper.sweep()).deleted


async def _forget_answers(at: Premises) -> int:
    return await at.control.log.forget_answers(older_than_ms=at.settings.answers_ms)


async def _expire_producers(at: Premises) -> int:
    expire = partial(at.control.log.expire_producers, idle_ms=at.settings.producer_expiry_ms)
    return await _in_chunks(expire, at.settings.chunk_rows)


async def _expire_offsets(at: Premises) -> int:
    expire = partial(at.control.groups.expire_offsets, retention_ms=at.offsets_retention_ms)
    return await _in_chunks(expire, at.settings.chunk_rows)


async def _forget_deletions(at: Premises) -> int:
    await check_store(at.control, at.store)
    return await delete_older(at.store, DELETIONS_PREFIX, at.clock.now_ms() - NOTE_AGE_MS)


async def _forget_writers(at: Premises) -> int:
    await check_store(at.control, at.store)
    # Witnesses first, so that none of a writer that is forgotten stays.
    deleted = await delete_old_witnesses(at.store, at.clock.now_ms())
    return deleted + await at.control.writers.forget(older_than_ms=_WRITER_AGE_MS)


class _RemoveRows(Protocol):
    def __call__(self, *, max_rows: int) -> Awaitable[int]: ...


async def _in_chunks(remove: _RemoveRows, chunk_rows: int) -> int:
    """Remove rows in transactions of at most `chunk_rows` each, until there are no more."""
    removed = 0
    while True:
        chunk = await remove(max_rows=chunk_rows)
        removed += chunk
        if chunk < chunk_rows:
            return removed


STEPS = (
    Step(
        name="retention",
        goes_by=("topic.retention.ms", "topic.retention.bytes", "janitor.retention_window_ms"),
        run=_enforce_retention,
        failure_means="expired records stay readable and keep their space",
    ),
    Step(
        name="topic purge",
        goes_by=("janitor.deleted_topic_window_ms",),
        run=_purge_topics,
        failure_means="deleted topics keep their space",
    ),
    Step(
        name="deletion",
        goes_by=("janitor.grace_ms", "janitor.backup_window_ms"),
        run=_delete_marked,
        failure_means="unreferenced objects keep their space",
        takes_objects=True,
    ),
    Step(
        name="unfinished segments",
        goes_by=("janitor.unfinished_age_ms",),
        run=_clear_unfinished,
        failure_means="segments that were never finished keep their space",
    ),
    Step(
        name="segment deletion",
        goes_by=("janitor.grace_ms", "janitor.backup_window_ms"),
        run=_delete_segments,
        failure_means="unreferenced segments keep their space",
        takes_objects=True,
    ),
    Step(
        name="sweep",
        goes_by=("janitor.orphan_age_ms",),
        run=_sweep,
        failure_means="objects that were never committed keep their space",
        takes_objects=True,
    ),
    Step(
        name="segment sweep",
        goes_by=("janitor.orphan_age_ms",),
        run=_sweep_segments,
        failure_means="objects of abandoned segments keep their space",
        takes_objects=True,
    ),
    Step(
        name="answer expiry",
        goes_by=("janitor.answers_ms",),
        run=_forget_answers,
        # Not only for brokers: the rows of deleted objects stay with their answers, so that a
        # pipeline that runs alone would add a row for every file that it ever wrote.
        failure_means="the control plane keeps answers that are no longer asked for, and the rows"
        " of deleted objects",
    ),
    Step(
        name="writer expiry",
        # After the sweeps, which need the writers of the garbage that they take.
        run=_forget_writers,
        failure_means="the control plane keeps writers that ended long ago",
    ),
    Step(
        name="deletion note expiry",
        run=_forget_deletions,
        failure_means="the store keeps notes of deletions that no recovery needs",
    ),
    Step(
        name="producer expiry",
        goes_by=("janitor.producer_expiry_ms",),
        run=_expire_producers,
        failure_means="the control plane keeps the sequences of idle producers",
        brokers_only=True,
    ),
    Step(
        name="offset expiry",
        goes_by=("groups.offsets_retention_ms",),
        run=_expire_offsets,
        failure_means="groups that are long gone keep their offsets",
        brokers_only=True,
    ),
)
