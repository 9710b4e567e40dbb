"""An alarm at the real doors: simulated code must not ask the machine for time or randomness."""

import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numba
from tests.simulation.replacing import replaced

_DOORS = ((time, "time_ns"), (time, "monotonic"), (time, "sleep"), (os, "urandom"))
_COMPILER = str(Path(numba.__file__).parent)
"""The compiler names the files of its cache at random, when a machine compiles a loop for the first
time. The loops themselves do not depend on that."""


@contextmanager
def alarmed_doors() -> Iterator[list[str]]:
    """Collect the uses of real time and real randomness as violations.

    Only of this thread, on which everything simulated runs: other tests may have left a broker or a
    JVM's gateway in threads of their own.
    """
    leaks: list[str] = []
    simulating = threading.get_ident()

    def alarmed(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def door(*args: Any) -> Any:
            if threading.get_ident() != simulating:
                return real(*args)
            callers = traceback.extract_stack()[:-1]
            if not any(caller.filename.startswith(_COMPILER) for caller in callers):
                where = " < ".join(f"{one.filename}:{one.lineno}" for one in callers[:-3:-1])
                leaks.append(f"leak: {name} was used by {where}")
            return real(*args)

        return door

    with ExitStack() as stack:
        for module, name in _DOORS:
            real = getattr(module, name)
            stack.enter_context(replaced(module, name, alarmed(name, real)))
        yield leaks
