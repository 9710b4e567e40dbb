"""Memory for bytes that are read to be written again.

A direct write takes its bytes from memory that lies as they will lie in the file: whose address and
place in the file have the same remainder by the size of a page. A reader that knows the later
position of its bytes asks for such memory, and the bytes are never copied again.
"""

import ctypes
from collections.abc import Callable
from typing import Any, cast

PAGE_BYTES = 4096
IN_PLACE_BYTES = 32 * 1024
"""Less than this is copied for a write: of each piece, the pages at both ends are anyway."""


def new_memory(size_bytes: int) -> bytearray:
    """Memory to be filled, with anything in it. To clear it first would take half of a read."""
    return _new_bytearray(None, size_bytes)


def grow(memory: bytearray, size_bytes: int) -> None:
    """Make memory larger, with anything in the new part. Raises `BufferError` if it has a view."""
    _resize_bytearray(memory, size_bytes)


def memory_for(size_bytes: int, position: int) -> memoryview:
    """Memory from which a direct write at this position of a file can take its bytes as they are.

    Small pieces can lie anywhere: alignment is not worth it for them.
    """
    if size_bytes < IN_PLACE_BYTES:
        return memoryview(new_memory(size_bytes))
    view = memoryview(new_memory(size_bytes + PAGE_BYTES - 1))
    start = (position - _address(view)) % PAGE_BYTES
    return view[start : start + size_bytes]


def lies_for(view: memoryview, position: int) -> bool:
    """Return True if a direct write at this position can use this memory."""
    return not view.readonly and (_address(view) - position) % PAGE_BYTES == 0


def _address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def _find_new_bytearray() -> Callable[[None, int], bytearray]:
    """Python's own way to a bytearray clears it."""
    found: Any = ctypes.pythonapi.PyByteArray_FromStringAndSize
    found.restype = ctypes.py_object
    found.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t]
    return cast(Callable[[None, int], bytearray], found)


def _find_resize() -> Callable[[bytearray, int], int]:
    """Python's own way clears twice as much as it adds: zeros are made, and copied to the end."""
    found: Any = ctypes.pythonapi.PyByteArray_Resize
    found.restype = ctypes.c_int
    found.argtypes = [ctypes.py_object, ctypes.c_ssize_t]
    return cast(Callable[[bytearray, int], int], found)


_new_bytearray = _find_new_bytearray()
_resize_bytearray = _find_resize()
