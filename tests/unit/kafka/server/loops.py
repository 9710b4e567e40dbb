"""Runs an asynchronous test on the standard event loop and on uvloop, which brokers use."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run_test(*args: Any, run: Callable[[Any], None], **kwargs: Any) -> None:
        run(test(*args, **kwargs))

    signature = inspect.signature(test)
    run = inspect.Parameter("run", inspect.Parameter.KEYWORD_ONLY)
    parameters = [*signature.parameters.values(), run]
    run_test.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    del run_test.__wrapped__
    both = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
    marked: Callable[..., None] = both(run_test)
    return marked
