"""An alarm at the real doors: simulated code must not ask the machine for time or randomness."""

import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.simulation.replacing import replaced

_DOORS = ((time, "time_ns"), (time, "monotonic"), (time, "sleep"), (os, "urandom"))
_COMPILER_CACHE = "numba/core/caching.py"
"""Names its temporary files at random in the first run of a working copy. No run sees them."""


@contextmanager
def alarmed_doors() -> Iterator[list[str]]:
    """Collect the uses of real time and real randomness as violations."""
    leaks: list[str] = []

    def alarmed(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def door(*args: Any) -> Any:
            caller = traceback.extract_stack(limit=3)[0]
            if not caller.filename.endswith(_COMPILER_CACHE):
                leaks.append(f"leak: {name} was used by {caller.filename}:{caller.lineno}")
            return real(*args)

        return door

    with ExitStack() as stack:
        for module, name in _DOORS:
            real = getattr(module, name)
            stack.enter_context(replaced(module, name, alarmed(name, real)))
        yield leaks
