"""The memory of a process: freed memory is kept for reuse, and garbage is collected rarely.

Requests to a broker come and go in buffers of a megabyte, and so do the reads of a job that builds
segments. By default glibc takes such buffers from the system and gives them back each time, and
every page then has to be mapped again. Measured, that halved the rate of a single producer, and
doubled the processor time of the reads of a job. The kept memory is bounded by the most that the
process uses at one time: in a broker by `block.max_inflight_bytes` and `block.cache_bytes`.

Thousands of requests that wait for their block are thousands of objects that Python's collector of
cycles visits again and again, and finds alive. Measured, that was half the cost of a small request.
The memory of a request is in no cycle and is freed without the collector, so that rare collections
are enough.
"""

import ctypes
import gc
import sys

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


def collect_garbage_rarely() -> None:
    """Call it when all modules are loaded: objects that exist by then are never visited again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, _YOUNG_COLLECTIONS, _OLD_COLLECTIONS)


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
