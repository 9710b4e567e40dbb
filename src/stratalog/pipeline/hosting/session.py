"""Opening and closing Spark sessions.

There is at most one session with a JVM of its own in a process: Spark allows no more. Everything
that the JVM and the Python workers below it print goes to a file, so that a run prints nothing;
the file's end is a part of the error if Spark does not start. Closing a session returns when its
JVM has ended; the Python workers, which the JVM asks to end first, follow within a moment.
"""

import logging
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

from stratalog.environment import ENVIRONMENT
from stratalog.pipeline.errors import SparkStartError
from stratalog.pipeline.hosting.guardian import guard, release
from stratalog.pipeline.hosting.java import find_java
from stratalog.pipeline.hosting.priority import send_back_session, step_back
from stratalog.pipeline.hosting.session_jobs import ClassicJobs, ConnectJobs, Jobs
from stratalog.pipeline.hosting.spark_conf import (
    LOG4J,
    SMALL_JVM,
    Place,
    SparkOptions,
    classic_conf,
    jvm_conf,
    place_of,
    runtime_conf,
)
from stratalog.pipeline.hosting.spark_folder import SparkFolder

log = logging.getLogger(__name__)

_STOP_SECONDS = 20.0
_ANY_SETTING = "spark.sql.session.timeZone"
"""A setting whose value does not matter. Unlike the version, it is read from the server."""
_ANSWER_SECONDS = 30.0
"""A JVM that collects garbage for so long is of no use either."""
_SAID_LINES = 8
_ERROR_LINE = re.compile(r"error|exception", re.I)
_GATEWAY_VARIABLE = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit for the program that it starts."""
_CONNECT_VARIABLES = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE")
_opening = threading.Lock()


@dataclass(slots=True, kw_only=True, eq=False)
class OpenSpark:
    """A session, and the process and folder that have to be closed with it."""

    session: SparkSession
    jobs: Jobs
    place: Place
    folder: SparkFolder | None = None
    """The folder of the JVM's files. None if the JVM is not ours."""
    process: subprocess.Popen[bytes] | None = None
    guardian: subprocess.Popen[bytes] | None = None
    """Kills the JVM if this process is killed."""

    @property
    def log_file(self) -> Path | None:
        """The output of the JVM and its workers. It is deleted when the session is closed."""
        return _log_file(self.folder.path) if self.folder is not None else None

    def is_alive(self) -> bool:
        """Tell whether the session answers in time. A dead one does not come back: see `drop`."""
        if self.process is not None and self.process.poll() is not None:
            return False
        answered = threading.Event()
        # A daemon: a call to a server that is gone may be repeated for minutes.
        threading.Thread(target=self._ask, args=[answered], daemon=True).start()
        return answered.wait(_ANSWER_SECONDS)

    def _ask(self, answered: threading.Event) -> None:
        with suppress(Exception):
            if self.place is Place.CONNECT:
                self.session.conf.get(_ANY_SETTING)
            elif cast(Any, self.session.sparkContext)._jsc.sc().isStopped():
                return
            answered.set()

    def drop(self) -> None:
        """Close the session without a call to Spark, which may never answer."""
        if self.process is not None:
            self.process.kill()
        elif self.place is Place.CONNECT:
            cast(Any, self.session).release_session_on_close = False
        self.close()

    def close(self) -> None:
        """End the session, and the JVM if it is ours. Closing twice is no error."""
        if self.place is Place.CONNECT:
            self.session.stop()
            return
        _stop_context(self.session.sparkContext)
        if self.process is not None and self.folder is not None:
            _end_jvm(self.process)
            self.folder.remove()
            self.process = self.folder = None
        if self.guardian is not None:
            release(self.guardian)
            self.guardian = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def is_submitted() -> bool:
    """Tell whether spark-submit has started this program and its JVM. Then the master is None."""
    return _GATEWAY_VARIABLE in ENVIRONMENT


def open_session(options: SparkOptions) -> OpenSpark:
    """Open a session as the master says. It blocks for seconds: call it in a thread."""
    place = place_of(options.master)
    # py4j would write every call into a debugging log, and with it the functions that we ship.
    logging.getLogger("py4j").setLevel(logging.INFO)
    if place is Place.CONNECT:
        return _connect(options)
    # In a thread of its own: in the main thread, Spark would replace the handler of SIGINT.
    with _opening, ThreadPoolExecutor(1) as thread:
        return thread.submit(_start, options, place).result()


def _connect(options: SparkOptions) -> OpenSpark:
    try:
        session = ConnectSession.builder.remote(options.master or "").create()
        for key, value in runtime_conf(options).items():
            session.conf.set(key, value)
        for archive in options.archives:
            session.addArtifacts(archive, archive=True)
        for file in options.py_files:
            session.addArtifacts(file, pyfile=True)
    except PySparkException as error:
        log.debug("Spark Connect refused", exc_info=True)
        raise SparkStartError(
            f"Spark Connect at {_without_token(options.master or '')}: {_first_line(error)}"
        ) from error
    spark = cast(SparkSession, session)
    return OpenSpark(session=spark, jobs=ConnectJobs(spark), place=Place.CONNECT)


def _start(options: SparkOptions, place: Place) -> OpenSpark:
    if SparkContext._active_spark_context is not None:
        raise SparkStartError("this process has a Spark session already: close it first")
    with _environment(_variables(options, place)):
        if place is Place.SUBMITTED:
            session = _start_context(_submitted_conf(options), None, None)
            return OpenSpark(session=session, jobs=ClassicJobs(session), place=place)
        return _start_jvm(options, place, SparkFolder())


def _start_jvm(options: SparkOptions, place: Place, folder: SparkFolder) -> OpenSpark:
    try:
        log4j = folder.path / "log4j2.properties"
        log4j.write_text(LOG4J)
        settings = classic_conf(options) | jvm_conf(options, log4j)
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        # In a thread that ends with the launch: a lowered priority is inherited by its children.
        with ThreadPoolExecutor(1) as thread:
            process = thread.submit(_launch_jvm, conf, folder.path, yields=options.yields).result()
        guardian = guard(process.pid)
        try:
            session = _start_context(conf, process, folder.path)
        except BaseException:
            release(guardian)
            raise
    except BaseException:
        folder.remove()
        raise
    return OpenSpark(
        session=session,
        jobs=ClassicJobs(session),
        place=place,
        folder=folder,
        process=process,
        guardian=guardian,
    )


def _submitted_conf(options: SparkOptions) -> SparkConf:
    """Return the settings of spark-submit, completed by ours."""
    SparkContext._ensure_initialized()
    conf = SparkConf(_jvm=SparkContext._jvm)
    for key, value in classic_conf(options).items():
        conf.setIfMissing(key, value)
    return conf.setAll(list(options.conf.items()))


def _variables(options: SparkOptions, place: Place) -> dict[str, str | None]:
    """Environment variables that Spark reads while it starts. None: not to be set."""
    variables: dict[str, str | None] = dict.fromkeys(_CONNECT_VARIABLES)
    python = options.python or options.conf.get("spark.pyspark.python")
    if place is not Place.SUBMITTED:
        variables["JAVA_HOME"] = str(find_java().home)
        variables["SPARK_LAUNCHER_OPTS"] = ENVIRONMENT.get("SPARK_LAUNCHER_OPTS", SMALL_JVM)
        variables[_GATEWAY_VARIABLE] = None
    if place is Place.LOCAL:
        python = python or sys.executable
        variables |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": None}
    if python is not None:
        variables["PYSPARK_PYTHON"] = python
    return variables


@contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    before = {name: ENVIRONMENT.get(name) for name in variables}
    _set_environment(variables)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            ENVIRONMENT.pop(name, None)
        else:
            ENVIRONMENT[name] = value


def _launch_jvm(conf: SparkConf, folder: Path, *, yields: bool) -> subprocess.Popen[bytes]:
    if yields:
        step_back()
    with _log_file(folder).open("ab") as printed:
        options = {"stdout": printed, "stderr": printed, "start_new_session": yields}
        try:
            launch = cast(Any, launch_gateway)  # Spark gives no types for it.
            gateway = launch(conf, options)
        except PySparkException as error:
            raise SparkStartError(f"Spark's JVM ended at once: {_said(folder)}") from error
    SparkContext._ensure_initialized(gateway=gateway)
    process: subprocess.Popen[bytes] = gateway.proc
    if yields:
        send_back_session(process.pid)
    return process


def _start_context(
    conf: SparkConf, process: subprocess.Popen[bytes] | None, folder: Path | None
) -> SparkSession:
    try:
        return SparkSession(SparkContext(conf=conf))
    except BaseException as error:
        said = f"\n{_said(folder)}" if folder is not None else ""
        if process is not None:
            _end_jvm(process)
        if not isinstance(error, Exception):
            raise
        log.debug("Spark did not start", exc_info=True)
        raise SparkStartError(f"Spark did not start: {_first_line(error)}{said}") from error


def _stop_context(context: SparkContext) -> None:
    """Stop the context as Spark does. If the JVM is gone already, nothing is left to stop."""
    # Twice: without a JVM the first call breaks off, and the second one does the rest.
    for _ in range(2):
        with warnings.catch_warnings(), suppress(Exception):
            warnings.simplefilter("ignore")
            context.stop()
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


def _end_jvm(process: subprocess.Popen[bytes]) -> None:
    """End the JVM by closing its standard input, and kill it if it lingers."""
    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    with suppress(Exception):
        if gateway is not None:
            gateway.shutdown()
    with suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _log_file(folder: Path) -> Path:
    return folder / "spark.log"


def _said(folder: Path) -> str:
    """Return the important lines of the output: Spark prints pages of usage after some errors."""
    lines = _log_file(folder).read_text(errors="replace").splitlines()
    errors = [line for line in lines if _ERROR_LINE.search(line)][:_SAID_LINES]
    return "\n".join(errors or lines[-_SAID_LINES:]) or "it printed nothing"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _without_token(url: str) -> str:
    """A Connect URL may carry a token after the first semicolon."""
    return url.partition("/;")[0]
