"""SIGTERM in the process in which Spark keeps a stream's reader."""

import signal
import sys
from types import FrameType

_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
"""The module that Spark runs in the process of a stream's reader."""


def exit_on_sigterm() -> None:
    """Let SIGTERM unwind the stack, if this is the process of a stream's reader.

    Spark's runner stops its reader however the runner ends. But a query that ends sends the
    process a SIGTERM at the same moment, which would end the process before the reader is stopped.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == _RUNNER:
        signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    del frame
    # The signal comes twice. The second one would interrupt the stopping.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + number)
