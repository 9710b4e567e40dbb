"""A daemon for Spark's Python workers that has imported the code to read and write a topic.

Workers are forked from the daemon, so each has the compiled loops at once. No module that is
imported here may start a Python thread: threads do not survive a fork. Spark plans in processes of
another kind, for which no module can be configured.
"""

import gc

import numpy  # noqa: F401
import pandas  # noqa: F401
import pyarrow  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import stratalog.batch.run_decoder
import stratalog.scan.split_reader
import stratalog.spark.sink_task  # noqa: F401


def serve() -> None:
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    serve()
