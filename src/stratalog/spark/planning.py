"""Spark's way to the planner of scans: settings, requests, and calls from where no loop runs.

Spark makes and asks readers in Python processes of its own, which come and go. Each call opens
the control plane, asks, and closes it. What goes on to executors must hold no way to the control
plane, so readers keep options and find the settings again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql.datasource import InputPartition

from stratalog.clock import SYSTEM_CLOCK
from stratalog.control.scans.model import Lease
from stratalog.errors import StratalogError
from stratalog.opening.workers import WorkerAccess
from stratalog.scan.model import (
    Positions,
    ResolvedPositions,
    ScanColumn,
    ScanPlan,
    ScanRequest,
    ScanSplit,
)
from stratalog.settings import Settings
from stratalog.spark.options import ReadOptions
from stratalog.spark.patience import OUTAGES, patiently
from stratalog.spark.settings_hint import hinting_at_settings
from stratalog.spark.telling import ToldPlainly

if TYPE_CHECKING:
    from stratalog.scan.planner import Scanner

T = TypeVar("T")

HOLDER = "spark"
_RELEASE_S = 10
"""For leases of a query that has ended: nobody waits for its process, which must not linger."""


class SplitPartition(InputPartition):
    """One task's work. Spark writes it into the plan of a query, so it holds no secret."""

    def __init__(self, split: ScanSplit) -> None:
        super().__init__(split)


def settings_of(options: ReadOptions) -> Settings:
    return options.location.settings()


def find_place(options: ReadOptions) -> WorkerAccess:
    from stratalog.opening.workers import WorkerKeys, worker_access

    return worker_access(settings_of(options), WorkerKeys.OPENING)


def plan(
    options: ReadOptions,
    request: ScanRequest,
    *,
    read: Sequence[Lease] = (),
    patience_s: float = 0,
) -> ScanPlan:
    """`read` are leases of plans that nobody reads any more."""
    with hinting_at_settings(options.location):
        return _run(lambda: _plan(options, request, read), patience_s)


def release(options: ReadOptions, leases: Sequence[Lease]) -> None:
    """Of plans that nobody reads any more. If it fails, they run out."""
    with suppress(StratalogError, TimeoutError):
        asyncio.run(_release_all(options, leases))


def partitions_of(scan: ScanPlan) -> list[SplitPartition]:
    return [SplitPartition(split) for split in scan.splits]


def resolve(
    options: ReadOptions, request: ScanRequest, *positions: Positions, patience_s: float = 0
) -> ResolvedPositions:
    """What each of the positions stands for, partition by partition."""
    with hinting_at_settings(options.location):
        return _run(lambda: _resolve(options, request, positions), patience_s)


def _run(call: Callable[[], Awaitable[T]], patience_s: float) -> T:
    async def patient() -> T:
        return await patiently(call, patience_s, clock=SYSTEM_CLOCK, failures=OUTAGES)

    return asyncio.run(patient())


async def _plan(options: ReadOptions, request: ScanRequest, read: Sequence[Lease]) -> ScanPlan:
    from stratalog.scan.open import opened_scanner

    async with opened_scanner(settings_of(options)) as scanner:
        scan = await scanner.plan(request)
        await _release(scanner, read)
        return scan


async def _release_all(options: ReadOptions, leases: Sequence[Lease]) -> None:
    from stratalog.scan.open import opened_scanner

    async with asyncio.timeout(_RELEASE_S), opened_scanner(settings_of(options)) as scanner:
        await _release(scanner, leases)


async def _release(scanner: "Scanner", leases: Sequence[Lease]) -> None:
    """They run out by themselves. Nobody must fail because of them, with a new plan in hand."""
    with suppress(StratalogError):
        for lease in leases:
            await scanner.release(lease)


async def _resolve(
    options: ReadOptions, request: ScanRequest, positions: Sequence[Positions]
) -> ResolvedPositions:
    from stratalog.scan.open import opened_scanner

    async with opened_scanner(settings_of(options)) as scanner:
        return await scanner.resolve(request, positions)


def read_partition(partition: InputPartition, place: WorkerAccess) -> Iterator[object]:
    """The rows of a split. If a plan has no splits, Spark asks for one that says nothing."""
    from stratalog.scan.split_reader import read_split

    if isinstance(partition, SplitPartition):
        with ToldPlainly():
            yield from read_split(partition.value, place)


def scan_request(options: ReadOptions, columns: Sequence[ScanColumn]) -> ScanRequest:
    """What a batch reads."""
    selection = options.selection
    return ScanRequest(
        topics=selection.topics,
        pattern=selection.pattern,
        assign=selection.assign,
        starting=options.starting,
        ending=options.ending,
        rows=options.rows,
        columns=columns,
        committed=options.committed,
        fail_on_data_loss=options.fail_on_data_loss,
        split_bytes=options.split_bytes,
        min_splits=options.min_partitions,
        max_split_offsets=options.max_records_per_partition,
        lease_ms=options.lease_ms,
        holder=HOLDER,
    )
