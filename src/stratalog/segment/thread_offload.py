"""Work that would hold up the event loop goes to a thread; small work is done at once."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

INLINE_BYTES = 64 * 1024
"""Checking, decrypting or decompressing so much takes about as long as to wake a thread."""


async def offload(
    size_bytes: int,
    work: Callable[Arguments, Result],
    *args: Arguments.args,
    **kwargs: Arguments.kwargs,
) -> Result:
    """Do work on so many bytes."""
    if size_bytes <= INLINE_BYTES:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
