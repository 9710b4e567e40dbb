"""Has the C library keep the memory that a process frees, for the next piece of work to use.

Requests to a broker come and go in pieces of a megabyte, and so do the reads of a job that builds
segments. By default glibc takes such pieces from the system and gives them back each time, and
every page of them then has to be mapped anew: measured, that halved the rate of a single producer,
and doubled the processor time of the reads of a job. What is kept is bounded by what the process
has in use at once: a broker by `block.max_inflight_bytes` and `block.cache_bytes`.
"""

import ctypes
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_LARGEST_MMAP_THRESHOLD = 32 * 1024 * 1024
"""glibc refuses more."""
_NEVER_TRIM = 2**31 - 1


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
