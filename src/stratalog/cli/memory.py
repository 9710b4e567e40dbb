"""Has the C library keep the memory that a broker frees, for the next request to use.

Requests come and go in pieces of a megabyte, which glibc by default takes from the system and
gives back each time. Every page of them then has to be mapped anew: measured, that halved the rate
of a single producer. The memory kept is bounded by what the broker may have in use at once
(`block.max_inflight_bytes` and `block.cache_bytes`).
"""

import ctypes
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGEST_MMAP_THRESHOLD = 32 * 1024 * 1024
"""glibc refuses more."""
_NEVER_TRIM = 2**31 - 1


def keep_freed_memory() -> None:
    """A no-op where the C library has no such knobs."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIM)
