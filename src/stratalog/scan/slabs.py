"""Memory that fetched bytes are put into, and that is used again once they have been decoded.

Memory that is new to a process is mapped page by page, which takes longer than to read a file into
it or to check the CRCs of what was read.
"""

import sys

from stratalog.objects.memory import PAGE_BYTES, cut_for, memory_for, new_memory

_LONE_REFERENCES = 2
"""To a slab that nobody uses: the list's, and that of the call which counts them."""


class Slabs:
    """A few pieces of memory of one size, asked for by one thread.

    Nobody gives a slab back: it is free as soon as no view of it is left anywhere. So a read that
    was given up, but is still under way in a thread, does not write where others read.
    """

    def __init__(self, *, slab_bytes: int, most_slabs: int) -> None:
        self._slab_bytes = slab_bytes
        self._most_slabs = most_slabs
        self._slabs: list[bytearray] = []

    def take(self, size_bytes: int, position: int, *, room_bytes: int = 0) -> memoryview:
        """Memory for what lies at this position of a file, after some room for what comes before
        it; from a slab if it fits into one.

        The bytes lie in their page as they do in the file's. Some processors copy at a quarter of
        their speed to memory that lies a few bytes further on, which is where new memory begins.
        """
        total_bytes = room_bytes + size_bytes
        slab = self._free() if total_bytes <= self._slab_bytes else None
        if slab is None:
            return memory_for(total_bytes, position - room_bytes)
        return cut_for(memoryview(slab), total_bytes, position - room_bytes)

    def _free(self) -> bytearray | None:
        for number in range(len(self._slabs)):
            if sys.getrefcount(self._slabs[number]) == _LONE_REFERENCES:
                return self._slabs[number]
        if len(self._slabs) == self._most_slabs:
            return None
        self._slabs.append(new_memory(self._slab_bytes + PAGE_BYTES))
        return self._slabs[-1]
