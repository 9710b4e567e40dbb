"""Topics as DataFrames.

Spark's Python workers import this room without a session, so the functions below are imported only
when they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from stratalog.extras import require_spark

if TYPE_CHECKING:
    from stratalog.spark.session import open_session
    from stratalog.spark.topics import read_topic

__all__ = ["open_session", "read_topic"]

# The check stands here, because every module of this room is imported through this one.
require_spark("stratalog.spark")

_MODULES = {"open_session": "stratalog.spark.session", "read_topic": "stratalog.spark.topics"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
