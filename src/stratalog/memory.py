"""The memory of a process: freed memory is kept for reuse, and garbage is collected rarely.

Requests to a broker come and go in buffers of a megabyte, and so do the reads of a job that builds
segments. By default glibc takes such buffers from the system and gives them back each time, and
every page then has to be mapped again. Measured, that halved the rate of a single producer, and
doubled the processor time of the reads of a job. The kept memory is bounded by the most that the
process uses at one time: in a broker by `block.max_inflight_bytes` and `block.cache_bytes`.

Thousands of requests that wait for their block are thousands of objects that Python's collector of
cycles visits again and again, and finds alive. The memory of a request is in no cycle and is freed
without the collector, so that rare collections are enough. A job collects after 50,000 new objects.
A broker collects by time: after 50,000 objects, the collector took a quarter of a small request,
and after a million hardly anything. Cycles, such as an error and its traceback, are then freed
within seconds, whether a broker is busy or idle.
"""

import ctypes
import gc
import sys
from collections.abc import Awaitable, Callable
from typing import NoReturn

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_LARGEST_MMAP_THRESHOLD = 32 * 1024 * 1024
"""glibc refuses more."""
_NEVER_TRIM = 2**31 - 1

_NEW_OBJECTS = 50_000
_YOUNG_COLLECTIONS = 20
_OLD_COLLECTIONS = 100
"""The number of collections of one generation before the next older one is collected."""

_NEW_OBJECTS_OF_BROKER = 1_000_000
"""More within one pause are collected at once, so that they cannot fill the memory."""
_PAUSE_S = 10.0
"""A collection visits the objects that were made since the last one and are still there: with 6,000
waiting requests it takes some 10 ms."""
_PAUSES_PER_FULL_COLLECTION = 360
"""Once in an hour all objects are visited, which takes a tenth of a second with a full cache. The
usual garbage of long life are closed connections, and they leave no cycles."""


def collect_garbage_rarely() -> None:
    """Call it when all modules are loaded: objects that exist by then are never visited again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, _YOUNG_COLLECTIONS, _OLD_COLLECTIONS)


async def collect_garbage_by_time(sleep: Callable[[float], Awaitable[None]]) -> NoReturn:
    """Collect for ever, in the thread of the event loop. Call it when the broker has started:
    objects that exist by then are never visited again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS_OF_BROKER, _YOUNG_COLLECTIONS, _OLD_COLLECTIONS)
    while True:
        for _ in range(_PAUSES_PER_FULL_COLLECTION):
            await sleep(_PAUSE_S)
            gc.collect(1)
        gc.collect()


def keep_freed_memory(*, one_pool: bool = False) -> None:
    """Tell the C library to keep freed memory. A no-op where it has no such options.

    Usually threads have pools of their own, each with its own peak. With one pool, memory that one
    thread has freed serves all threads, which halves the memory of a job. One pool must be asked
    for before the process starts any thread.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIM)
        if one_pool:
            mallopt(_M_ARENA_MAX, 1)
