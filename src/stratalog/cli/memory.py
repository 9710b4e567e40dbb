"""How a broker's process holds its memory: freed pages are kept, and garbage is looked for rarely.

Requests come and go in pieces of a megabyte, which glibc by default takes from the system and
gives back each time. Every page of them then has to be mapped anew: measured, that halved the rate
of a single producer. The memory kept is bounded by what the broker may have in use at once
(`block.max_inflight_bytes` and `block.cache_bytes`).

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


def keep_freed_memory() -> None:
    """A no-op where the C library has no such knobs."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIM)
