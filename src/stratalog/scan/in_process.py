"""A scan read by one process, from its plan to its last batch, with its lease kept alive."""

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
from stratalog.scan.loop_thread import LoopThread, shared_loop_thread
from stratalog.scan.model import ScanPlan, ScanRequest
from stratalog.scan.open import opened_scanner
from stratalog.scan.opened_place import open_place
from stratalog.scan.planner import Scanner
from stratalog.scan.split_reader import chunks_of
from stratalog.settings import Settings

_MOST_THREADS = 8
"""Unless more are asked for: bytes rarely come faster than so many decode them."""
_MORE_WAITING = 2
"""Chunks, beside one for each thread, so that none has to wait for the next."""
_RENEWALS = 3
"""In the time that a lease lasts, so that one may fail."""
_CLOSE_SECONDS = 30

_log = logging.getLogger(__name__)


def open_reading(settings: Settings, request: ScanRequest, threads: int | None) -> "Reading":
    """Plan now, so that a wrong request fails here; read when somebody takes the batches."""
    held = _HeldPlan(shared_loop_thread(), settings, request)
    plan = held.plan()
    return Reading(
        held, _batches(plan, request, worker_access(settings, WorkerKeys.OPENING), threads)
    )


class Reading:
    """The batches in order. The lease is given back after the last one, or when this is let go."""

    def __init__(self, held: "_HeldPlan", batches: Generator[pa.RecordBatch]) -> None:
        self._held = held
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
        self._held.release()

    def __del__(self) -> None:
        # With the interpreter the background ends, too: nobody would answer.
        if not sys.is_finalizing():
            self.close()


class _HeldPlan:
    """A plan whose lease is renewed by one task of the background, until it is released."""

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
        """May be repeated. Waits, unless it is called where waiting would last for ever."""
        if self._task.done():
            return
        self._background.call(self._released.set)
        if not self._background.is_here:
            try:
                self._task.result(_CLOSE_SECONDS)
            except (StratalogError, TimeoutError) as error:
                _log.warning("the lease of a scan was not given back, it ends by itself: %s", error)

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
                # Reading goes on: most likely everything is still there.
                _log.warning("the lease of a scan could not be renewed: %s", error)


def _batches(
    plan: ScanPlan, request: ScanRequest, place: WorkerAccess, threads: int | None
) -> Generator[pa.RecordBatch]:
    decoder = Decoder(request.columns, request.rows)
    yield from sized(_decoded(plan, decoder, place, threads or _default_threads()))


def _decoded(
    plan: ScanPlan, decoder: Decoder, place: WorkerAccess, threads: int
) -> Iterator[pa.RecordBatch]:
    """Chunks are decoded by several threads at once, and come out in order."""
    waiting: deque[Future[list[pa.RecordBatch]]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="stratalog-decode") as pool:
        try:
            for split in plan.splits:
                chunks = chunks_of(split, open_place(place))
                for chunk in chunks:
                    waiting.append(pool.submit(decoder.decode, chunk))
                    if len(waiting) > threads + _MORE_WAITING:
                        yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _default_threads() -> int:
    return min(os.cpu_count() or 1, _MOST_THREADS)
