"""A Spark session that is tuned to read topics. Any other session works too, but slower."""

import atexit
import threading
from collections.abc import Mapping
from typing import Any, cast

from pyspark.sql import SparkSession

from stratalog.pipeline.hosting import session as sessions
from stratalog.pipeline.hosting.spark_conf import Place, SparkOptions, place_of

DAEMON_MODULE = "stratalog.spark.daemon"
_LEAVES = "spark.sql.leafNodeDefaultParallelism"

_RUNTIME = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
"""Settings for queries on topics, which carry many rows. The pipeline's jobs carry plans of a few
rows."""

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_WORKING_JVM = "-XX:TieredStopAtLevel=4 -XX:-UseSerialGC -XX:+UseParallelGC"
"""The pipeline's JVM is tuned to start quickly and does little. The JVM of a query handles every
row: with these options it was four times as fast in a measurement."""

_opening = threading.Lock()
_opened: sessions.OpenSpark | None = None


def open_session(
    master: str = "local[*]",
    *,
    app_name: str = "stratalog",
    conf: Mapping[str, str] | None = None,
    ui: bool = False,
) -> SparkSession:
    """Open a tuned, quiet session. A machine without Java uses the Java that came with Stratalog.

    `master` is `local[*]`, `local[4]`, `spark://host:port`, or `sc://host:port` for Spark Connect.
    Entries of `conf` override the tuning. A session that this function opened before, and that was
    not stopped, is returned again.
    """
    options = session_options(master, app_name=app_name, conf=conf or {}, ui=ui)
    if place_of(master) is Place.CONNECT:
        return _tuned(sessions.open_session(options), options)
    global _opened
    with _opening:
        if _opened is not None and _is_running(_opened.session):
            return _opened.session
        _close_last()
        _opened = sessions.open_session(options)
        return _tuned(_opened, options)


def session_options(
    master: str, *, app_name: str, conf: Mapping[str, str], ui: bool
) -> SparkOptions:
    tuned = dict(_RUNTIME)
    if place_of(master) is Place.LOCAL:
        tuned["spark.python.daemon.module"] = DAEMON_MODULE
        tuned[_JAVA_OPTIONS] = f"{_WORKING_JVM} {conf.get(_JAVA_OPTIONS, '')}".rstrip()
        conf = {key: value for key, value in conf.items() if key != _JAVA_OPTIONS}
    return SparkOptions(master=master, app_name=app_name, conf={**tuned, **conf}, ui=ui)


def _tuned(opened: sessions.OpenSpark, options: SparkOptions) -> SparkSession:
    session = opened.session
    if _LEAVES not in options.conf:
        session.conf.unset(_LEAVES)
    if opened.place is not Place.CONNECT:
        # The session was opened in another thread, and a write looks up its format in the active
        # session of this thread.
        jvm = cast(Any, session)._jvm
        getattr(jvm, "org.apache.spark.sql.classic.SparkSession").setActiveSession(
            cast(Any, session)._jsparkSession
        )
    return session


def _is_running(session: SparkSession) -> bool:
    return session.sparkContext._jsc is not None


@atexit.register
def _close_last() -> None:
    """End the JVM of a session that was stopped, and delete its files."""
    global _opened
    if _opened is not None:
        _opened.close()
        _opened = None
