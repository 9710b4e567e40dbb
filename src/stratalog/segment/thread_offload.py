"""Work that would block the event loop, done on a thread. Small work is done at once."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

INLINE_BYTES = 64 * 1024
"""Checking, decrypting or decompressing so many bytes takes about as long as waking a thread."""


async def offload(
    size_bytes: int,
    work: Callable[Arguments, Result],
    *args: Arguments.args,
    **kwargs: Arguments.kwargs,
) -> Result:
    """Do work on so many bytes, on a thread if they are many."""
    if size_bytes <= INLINE_BYTES:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
