"""Spark's daemon of Python workers, with everything imported before the first worker is forked.

Spark runs this module instead of its own daemon, which imports after each fork and then has the
garbage collector go through all imported modules after every task. No module that is imported here
may start a thread: threads do not survive a fork. A test counts them.
"""

import gc

import numpy  # noqa: F401
import pandas  # noqa: F401
import pyarrow  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import stratalog.batch.log_layout
import stratalog.pipeline.hosting.run_task
import stratalog.pipeline.hosting.task_rows  # noqa: F401


def serve() -> None:
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    serve()
