"""Calls of readers to the planner of scans, from Spark's processes, which run no event loop.

Spark creates and calls readers in short-lived Python processes of its own. Each call opens the
control plane, asks, and closes it. Readers travel to executors, which must not learn the address of
the control plane. So readers keep options, and each call reads the settings again.
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
from stratalog.spark.error_hints import hint_at_settings
from stratalog.spark.options import ReadOptions
from stratalog.spark.outage_retry import OUTAGES, retry_for
from stratalog.spark.plain_errors import PlainErrors

if TYPE_CHECKING:
    import pyarrow as pa

    from stratalog.scan.planner import Scanner

T = TypeVar("T")

HOLDER = "spark"
_RELEASE_S = 10
"""The time to release the leases of a query that has ended: its process must not linger."""


class SplitPartition(InputPartition):
    """The work of one task. Spark writes it into the plan of a query, so it holds no secret."""

    def __init__(self, split: ScanSplit) -> None:
        super().__init__(split)


def settings_of(options: ReadOptions) -> Settings:
    return options.location.settings()


def worker_access_of(options: ReadOptions) -> WorkerAccess:
    from stratalog.opening.workers import WorkerKeys, worker_access

    return worker_access(settings_of(options), WorkerKeys.OPENING)


def plan(
    options: ReadOptions,
    request: ScanRequest,
    *,
    read: Sequence[Lease] = (),
    retry_s: float = 0,
) -> ScanPlan:
    """Plan a scan, and release the leases of plans that were read completely."""
    with hint_at_settings(options.location):
        return _run(lambda: _plan(options, request, read), retry_s)


def release(options: ReadOptions, leases: Sequence[Lease]) -> None:
    """Release leases of plans that are not read any more. If that fails, they run out."""
    with suppress(StratalogError, TimeoutError):
        asyncio.run(_release_all(options, leases))


def partitions_of(scan: ScanPlan) -> list[SplitPartition]:
    return [SplitPartition(split) for split in scan.splits]


def resolve(
    options: ReadOptions, request: ScanRequest, *positions: Positions, retry_s: float = 0
) -> ResolvedPositions:
    """Return the offsets that each of the positions stands for."""
    with hint_at_settings(options.location):
        return _run(lambda: _resolve(options, request, positions), retry_s)


def _run(call: Callable[[], Awaitable[T]], retry_s: float) -> T:
    async def patient() -> T:
        return await retry_for(call, retry_s, clock=SYSTEM_CLOCK, failures=OUTAGES)

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
    """Release leases. A failure is ignored: leases run out, and the new plan is good."""
    with suppress(StratalogError):
        for lease in leases:
            await scanner.release(lease)


async def _resolve(
    options: ReadOptions, request: ScanRequest, positions: Sequence[Positions]
) -> ResolvedPositions:
    from stratalog.scan.open import opened_scanner

    async with opened_scanner(settings_of(options)) as scanner:
        return await scanner.resolve(request, positions)


def read_partition(partition: InputPartition, access: WorkerAccess) -> "Iterator[pa.RecordBatch]":
    """Read the rows of a split. For a plan without splits, Spark passes an empty partition."""
    from stratalog.scan.split_reader import read_split

    if isinstance(partition, SplitPartition):
        with PlainErrors():
            yield from read_split(partition.value, access)


def scan_request(options: ReadOptions, columns: Sequence[ScanColumn]) -> ScanRequest:
    """Return the request of a batch."""
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
        skips_undecodable=options.skips_undecodable,
        split_bytes=options.split_bytes,
        min_splits=options.min_partitions,
        max_split_offsets=options.max_records_per_partition,
        lease_ms=options.lease_ms,
        holder=HOLDER,
    )
