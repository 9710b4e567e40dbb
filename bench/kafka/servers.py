"""The measured servers. Each is a process of its own with a folder of its own."""

import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from bench.kafka.maven import classpath
from bench.kafka.processes import tree_seconds

from stratalog.environment import ENVIRONMENT
from stratalog.settings_source import PREFIX

HERE = Path(__file__).parents[2]
START_SECONDS = 60
STOP_SECONDS = 60
JVM = ["java", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
JVM += ["-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"]
JVM += ["-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
"""As Kafka's own scripts start a JVM."""


@dataclass(frozen=True, slots=True)
class Server:
    address: str
    process_id: int
    partitions_of_a_topic: int | None = None
    """The mock cluster gives all its topics the same number, and creates none by request."""

    def cpu_seconds(self) -> float:
        """In user and system mode, with worker processes."""
        return tree_seconds(self.process_id)


@contextmanager
def stratalog(tree: Path) -> Iterator[Server]:
    """A broker with its defaults, out of a source tree."""
    command = [sys.executable, "-m", "stratalog.cli.main", "up", "--listen", "127.0.0.1:0"]
    with _folder("stratalog") as folder, _started([*command, "--data", "data"], folder, tree) as it:
        yield Server(_announced(it, folder, r"Stratalog is up on (\S+),"), it.pid)


@contextmanager
def mock() -> Iterator[Server]:
    """librdkafka's mock cluster: it keeps batches in memory, and is the most that a client sees."""
    with _folder("mock") as folder:
        command = [sys.executable, "-m", "bench.kafka.mock"]
        with _started(command, folder, HERE) as it:
            address = _announced(it, folder, r"(\S+)")
            yield Server(address, it.pid, partitions_of_a_topic=4)


@contextmanager
def kafka() -> Iterator[Server]:
    """One node that is broker and controller, with the defaults of Kafka and of its scripts."""
    jars = classpath()
    with _folder("kafka") as folder:
        port, controller_port = _free_ports(2)
        settings = folder / "server.properties"
        settings.write_text(_server_properties(port, controller_port, folder / "data"))
        command = [*JVM, "-cp", jars, "kafka.tools.StorageTool", "format"]
        command += ["-t", "b3JhbmdlLWp1aWNlLW9rLQ", "-c", str(settings)]
        formatted = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if formatted.returncode:
            raise SystemExit(f"Kafka could not format its folder:\n{formatted.stdout}")
        command = [*JVM, "-Xms1G", "-Xmx1G", "-cp", jars, "kafka.Kafka", str(settings)]
        with _started(command, folder, HERE) as process:
            _wait_for_port(port, process, folder)
            yield Server(f"127.0.0.1:{port}", process.pid)


def _server_properties(port: int, controller_port: int, data: Path) -> str:
    """One node cannot replicate the internal topics three times; everything else is the default."""
    return f"""
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller_port}
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""


@contextmanager
def _folder(name: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-{uuid4().hex[:6]}-") as folder:
        yield Path(folder)


@contextmanager
def _started(command: list[str], folder: Path, tree: Path) -> Iterator[subprocess.Popen[str]]:
    # Settings of the person who measures must not count: no variables, and no settings file.
    environment = {k: v for k, v in ENVIRONMENT.items() if not k.startswith(PREFIX)}
    environment["PYTHONPATH"] = f"{tree / 'src'}:{tree}"
    # The log goes to a file, because a pipe that nothing empties fills up and stops the server.
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _announced(process: subprocess.Popen[str], folder: Path, pattern: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(pattern, line):
            return found[1]
    raise SystemExit(f"A server did not start:\n{(folder / 'log').read_text()}")


def _wait_for_port(port: int, process: subprocess.Popen[str], folder: Path) -> None:
    end = time.perf_counter() + START_SECONDS
    while time.perf_counter() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"Kafka did not start:\n{(folder / 'log').read_text()}")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
