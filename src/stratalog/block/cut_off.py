"""Calls that are waited for no longer than their time, even if they hang."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from stratalog.errors import StratalogError

T = TypeVar("T")


async def cut_off(calls: Coroutine[Any, Any, T], left_s: float, unanswered: StratalogError) -> T:
    """Wait for the calls no longer than this, nor for them to clean up, which may hang as well."""
    task = asyncio.create_task(calls)
    try:
        done, _ = await asyncio.wait([task], timeout=left_s)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if done:
        return task.result()
    task.cancel()
    task.add_done_callback(_forget)
    raise unanswered


def _forget(task: "asyncio.Task[Any]") -> None:
    """Look at the outcome of a call that was cut off: asyncio complains of errors that are not."""
    if not task.cancelled():
        task.exception()
