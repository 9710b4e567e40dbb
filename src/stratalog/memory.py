"""How a process holds its memory: what it frees is kept, and garbage is looked for rarely.

Requests to a broker come and go in pieces of a megabyte, and so do the reads of a job that builds
segments. By default glibc takes such pieces from the system and gives them back each time, and
every page of them then has to be mapped anew: measured, that halved the rate of a single producer,
and doubled the processor time of the reads of a job. What is kept is bounded by what the process
has in use at once: a broker by `block.max_inflight_bytes` and `block.cache_bytes`.

Thousands of requests that wait for their block are as many thousands of objects that Python's
collector of cycles goes through again and again, and finds alive: measured, half of what a small
request costs. What a request holds is in no cycle and is freed without it, so looking once in a
while is enough.
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
"""How many make a collection of the next older generation."""


def collect_garbage_rarely() -> None:
    """To be called when all modules are loaded: what is there by then is never looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, _YOUNG_COLLECTIONS, _OLD_COLLECTIONS)


def keep_freed_memory(*, one_pool: bool = False) -> None:
    """A no-op where the C library has no such knobs.

    Usually threads have pools of their own, each with its own peak. With one pool, what one thread
    has freed is there for all of them, which is half the memory for a job; it must be asked for
    before the process starts any thread.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIM)
        if one_pool:
            mallopt(_M_ARENA_MAX, 1)
