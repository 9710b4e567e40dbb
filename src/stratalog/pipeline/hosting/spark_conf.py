"""The configuration of Spark for jobs that carry plans and no payload. Pure: no Spark is needed.

The settings were measured: Unix sockets to the Python workers and a daemon that has imported
everything bring an empty task from 55 ms to 13, and one compiler and one collector thread halve the
CPU that the start costs. A user's own setting always wins.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from stratalog.pipeline.errors import BadMasterError

DAEMON_MODULE = "stratalog.pipeline.hosting.spark_daemon"
LOCAL_ATTEMPTS = 2
"""A local task that lost its worker (out of memory, most likely) is tried once more."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOCAL = re.compile(r"local(?:\[(\*|[1-9]\d*)(?:,\s*([1-9]\d*))?\])?")
_CLUSTER = re.compile(r"(?:spark://.+|k8s://.+|yarn|local-cluster\[.+\])")

_RUNTIME = {
    # A plan's rows are cut into as many partitions as there are rows, up to this many: one task
    # per row without a shuffle, and the same on every attempt.
    "spark.sql.leafNodeDefaultParallelism": "1000000",
    "spark.sql.adaptive.enabled": "false",
    # Compiling code for a plan of a few rows takes longer than running it.
    "spark.sql.codegen.wholeStage": "false",
}
_CLASSIC = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.ui.showConsoleProgress": "false",
    # Workers keep freed memory for the next task: new pages cost more than the copy.
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": "2147483647",
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": "33554432",
    # Arrow's allocator keeps its memory, too. It gives pages back after ten milliseconds otherwise.
    "spark.executorEnv.MIMALLOC_PURGE_DELAY": "-1",
}
_LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

LOG4J = """\
status = off
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""
"""Written to the file that the JVM's standard error goes to, never to the user's terminal."""


class Place(Enum):
    LOCAL = "in a JVM of our own, on this machine"
    CLUSTER = "driven by a JVM of our own, on a cluster"
    CONNECT = "on a Spark Connect server"
    SUBMITTED = "wherever spark-submit has put us"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """The options of a session that a user may choose."""

    master: str | None
    """`local[*]`, `local[4]`, `spark://host:port`, `sc://host:port`; None under spark-submit."""
    app_name: str = "stratalog"
    conf: Mapping[str, str] = field(default_factory=dict)
    ui: bool = False
    """Spark's web pages, on the loopback interface if local."""
    preload: bool | None = None
    """Let workers be forked from a process that has imported everything. None: if local, because
    on a cluster it needs Stratalog installed, not only shipped along."""
    archives: Sequence[str] = ()
    """Packed environments for the executors: `environment.tar.gz#environment`."""
    py_files: Sequence[str] = ()
    """Python files, zips and wheels for the executors."""
    yields: bool = False
    """Give a Spark that starts on this machine a low priority. The driver keeps its own priority,
    because it holds locks that others wait for."""
    python: str | None = None
    """The executors' Python. None: ours if local, else $PYSPARK_PYTHON, else Spark's default."""


def place_of(master: str | None) -> Place:
    if master is None:
        return Place.SUBMITTED
    if _LOCAL.fullmatch(master):
        return Place.LOCAL
    if master.startswith("sc://"):
        return Place.CONNECT
    if _CLUSTER.fullmatch(master):
        return Place.CLUSTER
    raise BadMasterError(
        f"{master!r} is no master: say local[*], local[4], spark://host:port, yarn, "
        "k8s://https://host:port, or sc://host:port for Spark Connect"
    )


def runtime_conf(options: SparkOptions) -> dict[str, str]:
    """Return the settings that may be changed on a session that is already running."""
    conf = {**_RUNTIME, **options.conf}
    if options.python is not None:
        conf["spark.sql.execution.pyspark.python"] = options.python
    return conf


def classic_conf(options: SparkOptions) -> dict[str, str]:
    """Return the settings of a session with a JVM on this side."""
    place = place_of(options.master)
    conf = {**_RUNTIME, **_CLASSIC, "spark.app.name": options.app_name}
    conf["spark.ui.enabled"] = str(options.ui).lower()
    if options.master is not None:
        conf["spark.master"] = options.master
    if place is Place.LOCAL:
        conf |= _LOOPBACK | {"spark.master": _with_attempts(options.master or "")}
    if options.preload or (options.preload is None and place is Place.LOCAL):
        conf["spark.python.daemon.module"] = DAEMON_MODULE
    if options.archives:
        conf["spark.archives"] = ",".join(options.archives)
    if options.py_files:
        conf["spark.submit.pyFiles"] = ",".join(options.py_files)
    return conf | dict(options.conf)


def jvm_conf(options: SparkOptions, log4j: Path) -> dict[str, str]:
    """Return the settings of a JVM that we start. The user's own options come after ours."""
    ours = [f"-Dlog4j2.configurationFile={log4j.as_uri()}"]
    if place_of(options.master) is Place.LOCAL:
        ours.append(SMALL_JVM)
    return {_JAVA_OPTIONS: " ".join([*ours, options.conf.get(_JAVA_OPTIONS, "")]).rstrip()}


def _with_attempts(master: str) -> str:
    """Add the number of attempts to a local master: without it Spark never repeats a local task."""
    found = _LOCAL.fullmatch(master)
    assert found is not None, master
    return f"local[{found[1] or 1},{found[2] or LOCAL_ATTEMPTS}]"
