"""The guards of the protocols, and how to take each of them out of the real code.

A guard is worth its line only if something goes wrong without it. Each entry removes one, and the
simulation must notice within `MOST_SEEDS` seeds. `python -m tests.simulation --guards --into
docs/safety.md` looks for the first seed that does, and records it in the table of that page;
`make test` begins with the recorded seed.

A removal that does not fit the code any more fails by itself, which proves nothing about the guard.
`runs.py` refuses such a run.

Some guards matter in a moment that no load makes. Such a guard has a scenario, which changes the
cluster only while the guard is removed, so that the seeds of the loads stay as they are. With the
guard in place the scenario breaks no promise, and `make test` checks that, too.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from tests.simulation import disasters, nodes, removals, world
from tests.simulation.loads import (
    contended_rows,
    damaged_reads,
    doubtful_commits,
    hasty_deletions,
    hasty_segments,
    late_chains,
    late_swaps,
    overtaking_uploads,
)
from tests.simulation.replacing import replaced

from stratalog.block import row_batches
from stratalog.block.missing_sequences import MissingSequences
from stratalog.block.writer import BlockWriter
from stratalog.control.log import commits, reads, trims
from stratalog.control.log.sequences import Producer
from stratalog.control.objects.ledger import ObjectsLedger
from stratalog.control.pipeline import claims, splits
from stratalog.control.segments import chain
from stratalog.control.segments.lifecycle import SegmentOperations
from stratalog.control.sql import sqlite
from stratalog.control.sql.database import Rows
from stratalog.janitor import steps, sweeper
from stratalog.janitor.sweeper import Sweeper
from stratalog.opening import claim
from stratalog.pipeline import driver
from stratalog.pipeline.kinds import segment_finisher, split
from stratalog.segment import log_batches
from stratalog.topic.tiers import Tiers

MOST_SEEDS = 40

Removal = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Guard:
    name: str
    meaning: str
    remove: Removal
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


def with_disaster(name: str) -> Removal:
    """Each seed that can have this disaster has it."""
    return without(
        disasters, "draw_disaster", lambda _random, kinds: name if name in kinds else None
    )


GUARDS = (
    Guard(
        "tombstone in doubt",
        "A commit whose outcome is unknown is barred before its producers hear that it failed.",
        # The count of commits is a second guard: it refuses most commits that come late.
        both(
            without(commits.CommitOperations, "resolve_commit", removals.resolve_without_tombstone),
            without(commits, "count_commit", removals.count_unchecked),
        ),
        without(world, "load_of", doubtful_commits),
    ),
    Guard(
        "commit meets tombstone",
        "A commit fails if one of its objects has a row already.",
        without(commits, "_write_objects", removals.write_objects_unchecked),
    ),
    Guard(
        "tombstone before sweep",
        "The sweeper bars an object without a row before it deletes it.",
        without(ObjectsLedger, "bar", removals.bar_nothing),
    ),
    Guard(
        "segment tombstone before sweep",
        "The sweeper bars a segment without a row before it deletes its objects.",
        without(SegmentOperations, "bar", removals.bar_no_segment),
    ),
    Guard(
        "sequences",
        "A batch of an idempotent producer that repeats another is not stored again.",
        without(Producer, "take", removals.take_everything),
    ),
    Guard(
        "missing sequences",
        "The batch after one that was given up is not the beginning of an unknown producer.",
        without(MissingSequences, "mark", lambda self, block: block),
        with_disaster(disasters.HANG),
    ),
    Guard(
        "seal order",
        "Blocks are committed in the order in which they were sealed.",
        without(BlockWriter, "_commit_in_order", removals.commit_in_any_order),
        without(world, "load_of", overtaking_uploads),
    ),
    Guard(
        "trim at a row's edge",
        "A new start is compared with the edges of rows under the head's lock.",
        without(trims, "lies_in_row", removals.in_no_row),
    ),
    Guard(
        "trim of unmoved boundaries",
        "Boundaries move only if they are where the plan found them.",
        without_sql(
            "AND partitions.log_start = r.old_log_start"
            " AND partitions.block_start = r.old_block_start"
            " AND partitions.remote_end = r.old_remote_end"
        ),
    ),
    Guard(
        "chain at a row's edge",
        "The end of a segment is compared with the edges of rows under the head's lock.",
        both(
            without(chain, "_ends_in_row", removals.no),
            without(chain, "_count_rows", removals.count_rows_as_before),
        ),
        # A run looks for finished segments before it claims a partition. Here each run has looked
        # too early, so that it splits rows under a segment that a janitor chains later.
        both(
            without(driver, "chain_finished", removals.none_found),
            without(world, "load_of", late_chains),
        ),
    ),
    Guard(
        "chain at unmoved boundaries",
        "A segment is chained only if the boundaries are where the plan found them.",
        without_sql(
            "AND log_start = $5 AND remote_end = $6 AND block_start = $7",
            "AND $5 >= 0 AND $6 >= 0 AND $7 >= 0",
        ),
    ),
    Guard(
        "deletion of unchained segments",
        "A segment that is chained is never deleted as unfinished.",
        without_sql("AND NOT segments.chained AND segments.state <> $1", "AND state <> $1"),
        without(world, "load_of", contended_rows),
    ),
    Guard(
        "planned rows",
        "A split swaps rows only if exactly the planned ones are still there.",
        both(
            without(splits, "_judge", removals.judge_claims_alone),
            without(splits, "_replace", removals.replace_whatever_is_there),
        ),
    ),
    Guard(
        "claim of a split",
        "A split is committed only under the claim of its run.",
        without(splits, "lock_claims", removals.all_claims),
        without(world, "load_of", contended_rows),
    ),
    Guard(
        "claim of a merge",
        "A segment is chained only under the claim of its run.",
        both(
            without(chain, "lock_claim", removals.yes), without(chain, "holds_claim", removals.yes)
        ),
    ),
    Guard(
        "one claim at a time",
        "A range that one run holds is not given to another.",
        without(claims, "judge", removals.whoever_has_it),
    ),
    Guard(
        "grace",
        "Objects and segments are deleted some time after their mark.",
        both(
            without_sql("marked_ms <= {now_ms} - $1", "$1 >= 0"),
            without_sql("AND changed_ms <= {now_ms} - $2", "AND $2 >= 0"),
        ),
    ),
    Guard(
        "leases of readers",
        "An object that a lease may need is not deleted.",
        both(without_sql(removals.LEASE_OF_OBJECTS), without_sql(removals.LEASE_OF_SEGMENTS)),
    ),
    Guard(
        "leases of writers",
        "The sweeper leaves alone the objects of writers that hold a lease.",
        without(Sweeper, "_horizon_ms", removals.horizon_without_leases),
    ),
    Guard(
        "last reference",
        "An object is marked only when its last row is gone.",
        without_sql(
            "AND NOT EXISTS (SELECT 1 FROM batches WHERE batches.object_id = r.object_id)",
        ),
    ),
    Guard(
        "one snapshot",
        "Boundaries and rows of a read come from the same snapshot.",
        without(reads.ReadOperations, "find_batches", removals.find_in_two_snapshots),
    ),
    Guard(
        "log looked at again",
        "A merge looks for its log once more after its segment was added.",
        without(segment_finisher, "check_uploaded", removals.nothing),
        without(world, "load_of", hasty_segments),
    ),
    Guard(
        "CRC of a block",
        "The CRC of each batch is checked when a broker reads it from a block.",
        without(row_batches, "check_crc", removals.no_crc),
    ),
    Guard(
        "CRC of a segment",
        "The CRC of each batch is checked when a broker reads it from a segment.",
        without(log_batches._Selection, "_check_answered", removals.no_crc),
        without(world, "load_of", damaged_reads),
    ),
    Guard(
        "incarnation",
        "A broker renews the lease of its own incarnation only.",
        without_sql(
            "WHERE broker_id = $2 AND incarnation = $3", "WHERE broker_id = $2 AND $3 <> ''"
        ),
    ),
    Guard(
        "one broker per id",
        "A broker does not take the id of another that is alive.",
        without_sql("brokers.expires_ms > {now_ms}", "false"),
    ),
    Guard(
        "store without a marker",
        "A broker does not start on a store that lost its marker, or that was never claimed.",
        without(nodes, "claim_store", removals.claim_anywhere),
    ),
    Guard(
        "store id and claims",
        "A broker does not start on a store whose marker has an unknown id or an old claim.",
        without(claim, "check_marker", removals.check_cluster_alone),
        with_disaster(disasters.STORE_BACK),
    ),
    Guard(
        "count of commits",
        "A control plane that has forgotten commits of a writer takes no further one.",
        without(commits, "count_commit", removals.count_unchecked),
        with_disaster(disasters.CONTROL_BACK),
    ),
    Guard(
        "newest footers",
        "A broker does not start if the store holds blocks of commits that were forgotten.",
        # The generation in the marker is a second guard.
        both(
            without(nodes, "check_not_behind", removals.nothing),
            without(claim, "check_marker", removals.check_cluster_alone),
        ),
        with_disaster(disasters.CONTROL_BACK),
    ),
    Guard(
        "announced writers",
        "The sweeper takes objects of announced writers alone.",
        without(sweeper, "announced_ids", removals.all_ids),
    ),
    Guard(
        "backup window",
        "Objects that were replaced are kept for the backups that name them.",
        without(steps, "delete_marked", removals.delete_marked_early),
        without(world, "draw_backups", lambda _seed: True),
    ),
    Guard(
        "split meets tombstone",
        "A split fails if the sweeper has given its file up.",
        without(splits, "_has_object", removals.has_object_unchecked),
        # The driver looks for the file right before the commit. Here it has looked too early.
        both(
            without(split, "check_uploaded", removals.nothing),
            without(world, "load_of", late_swaps),
        ),
    ),
    Guard(
        "second look",
        "A read whose object is gone looks its offset up again before it fails.",
        without(Tiers, "is_stale", lambda self, error: False),
        without(world, "load_of", hasty_deletions),
    ),
)


def guard_named(name: str) -> Guard:
    for guard in GUARDS:
        if guard.name == name:
            return guard
    names = ", ".join(guard.name for guard in GUARDS)
    raise SystemExit(f"there is no guard {name!r}; the guards are: {names}")
