"""Has the C library keep the memory that a task frees, for the pieces that it reads next.

A task reads and frees megabytes all the time, in threads that each would have memory of their own.
glibc takes them from the system and gives them back each time, so that every page has to be mapped
anew: measured, that was half of the system's time in a merge. What is kept is what one task holds
at its peak.
"""

import ctypes
import sys
from functools import cache

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_LARGEST_MMAP_THRESHOLD = 32 * 1024 * 1024
"""glibc refuses more."""
_NEVER_TRIM = 2**31 - 1


@cache
def keep_freed_memory() -> None:
    """A no-op where the C library has no such knobs."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIM)
