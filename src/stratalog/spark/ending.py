"""How the process ends in which Spark keeps a stream's reader."""

import signal
import sys
from types import FrameType

_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
"""The module that Spark runs in such a process."""


def end_by_exception() -> None:
    """In a process of that kind, let SIGTERM unwind the stack.

    Spark's runner stops its reader when it ends, however that comes. But a query that ends sends
    the process a signal in the same moment, which would end it before anything is stopped.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == _RUNNER:
        signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    del frame
    # It comes twice, and would interrupt the stopping.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + number)
