"""A scan that one process reads, from its plan to its last batch, while its lease is renewed."""

import asyncio
import logging
import os
import sys
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

from stratalog.control.scans.model import Lease
from stratalog.errors import StratalogError
from stratalog.opening.workers import WorkerAccess, WorkerKeys, worker_access
from stratalog.scan.decode import Decoder, sized
from stratalog.scan.left_out import OnLeftOut
from stratalog.scan.loop_thread import LoopThread, shared_loop_thread
from stratalog.scan.model import ScanPlan, ScanRequest
from stratalog.scan.open import opened_scanner
from stratalog.scan.planner import Scanner
from stratalog.scan.scan_stores import shared_scan_stores
from stratalog.scan.split_reader import read_batch_groups
from stratalog.settings import Settings

_MOST_THREADS = 8
"""The default number of threads at most: bytes rarely arrive faster than so many decode them."""
_MORE_WAITING = 2
"""Groups of batches that wait beside one for each thread, so that no thread waits for the next."""
_RENEWALS = 3
"""Renewals in the time that a lease lasts, so that one may fail."""
_CLOSE_SECONDS = 30

_log = logging.getLogger(__name__)


def open_leased_scan(
    settings: Settings,
    request: ScanRequest,
    threads: int | None,
    on_left_out: OnLeftOut | None = None,
) -> "LeasedScan":
    """Plan now, so that a wrong request fails here. Bytes are read when batches are taken."""
    leased = _LeasedPlan(shared_loop_thread(), settings, request)
    plan = leased.plan()
    decoder = Decoder(request.columns, request.rows, on_left_out)
    access = worker_access(settings, WorkerKeys.OPENING)
    return LeasedScan(leased, _batches(plan, decoder, access, threads))


class LeasedScan:
    """Arrow batches in order. The lease is released after the last one, or when this is deleted."""

    def __init__(self, leased: "_LeasedPlan", batches: Generator[pa.RecordBatch]) -> None:
        self._leased = leased
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._batches)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._batches.close()
        self._leased.release()

    def __del__(self) -> None:
        # The background thread ends with the interpreter and would not answer.
        if not sys.is_finalizing():
            self.close()


class _LeasedPlan:
    """A plan whose lease a task of the background thread renews until it is released."""

    def __init__(self, background: LoopThread, settings: Settings, request: ScanRequest) -> None:
        self._background = background
        self._planned: Future[ScanPlan] = Future()
        self._released = asyncio.Event()
        self._task = background.submit(self._keep(settings, request))

    def plan(self) -> ScanPlan:
        try:
            return self._planned.result()
        except BaseException:
            self._task.cancel()
            raise

    def release(self) -> None:
        """Release the lease. May be repeated.

        Waits for the release, except on the background thread, which would wait for itself.
        """
        if self._task.done():
            return
        self._background.call(self._released.set)
        if not self._background.is_here:
            try:
                self._task.result(_CLOSE_SECONDS)
            except (StratalogError, TimeoutError) as error:
                _log.warning("the lease of a scan was not released, it ends by itself: %s", error)

    async def _keep(self, settings: Settings, request: ScanRequest) -> None:
        try:
            async with opened_scanner(settings) as scanner:
                plan = await scanner.plan(request)
                self._planned.set_result(plan)
                try:
                    await self._renew(scanner, plan.lease)
                finally:
                    await scanner.release(plan.lease)
        except BaseException as error:
            if self._planned.done():
                raise
            self._planned.set_exception(error)

    async def _renew(self, scanner: Scanner, lease: Lease) -> None:
        duration_ms = lease.expires_ms - lease.started_ms
        while True:
            try:
                async with asyncio.timeout(duration_ms / 1000 / _RENEWALS):
                    await self._released.wait()
                    return
            except TimeoutError:
                pass
            try:
                await scanner.renew(lease, duration_ms)
            except StratalogError as error:
                # The scan goes on: most likely all objects are still there.
                _log.warning("the lease of a scan could not be renewed: %s", error)


def _batches(
    plan: ScanPlan, decoder: Decoder, access: WorkerAccess, threads: int | None
) -> Generator[pa.RecordBatch]:
    yield from sized(_decoded(plan, decoder, access, threads or _default_threads()))


def _decoded(
    plan: ScanPlan, decoder: Decoder, access: WorkerAccess, threads: int
) -> Iterator[pa.RecordBatch]:
    """Decode with several threads at once, and yield the results in order."""
    waiting: deque[Future[list[pa.RecordBatch]]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="stratalog-decode") as pool:
        try:
            for split in plan.splits:
                for group in read_batch_groups(split, shared_scan_stores(access)):
                    waiting.append(pool.submit(decoder.decode, group))
                    if len(waiting) > threads + _MORE_WAITING:
                        yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _default_threads() -> int:
    return min(os.cpu_count() or 1, _MOST_THREADS)
