"""Memory with a forbidden page behind it."""

import ctypes
import mmap
import os
from typing import Any

import numpy as np

_NO_ACCESS = 0


class GuardedRoom:
    """A read past its last byte ends the process, as it may end a broker."""

    def __init__(self, size_bytes: int) -> None:
        pages_bytes = -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._memory = mmap.mmap(-1, pages_bytes + mmap.PAGESIZE)
        self.data: np.ndarray[Any, np.dtype[np.uint8]]
        self.data = np.frombuffer(self._memory, np.uint8, pages_bytes)
        self.address: int = self.data.__array_interface__["data"][0]
        guard, size = ctypes.c_void_p(self.address + pages_bytes), ctypes.c_size_t(mmap.PAGESIZE)
        if ctypes.CDLL(None, use_errno=True).mprotect(guard, size, _NO_ACCESS):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
