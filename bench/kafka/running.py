"""Runs the clients of a measurement, and takes its time and its cost."""

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bench.kafka.load import Load
from bench.kafka.maven import classpath
from bench.kafka.processes import Noise
from bench.kafka.servers import HERE, JVM, Server

CLIENT_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Run:
    seconds: float
    cpu_seconds: float
    """Processor time of the server."""
    noise: float
    """The share of the machine that processes of others used meanwhile."""


def run_clients(server: Server, loads: Sequence[Load]) -> Run:
    """All loads begin at once, each in its process, when all of them are ready."""
    clients = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.kafka.client"],
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in loads
    ]
    try:
        for client, load in zip(clients, loads, strict=True):
            _write(client, load.to_json())
        for client in clients:
            _line(client)
        with Noise.measured() as noise:
            cpu = server.cpu_seconds()
            for client in clients:
                _write(client, "go")
            seconds = max(float(_line(client)) for client in clients)
            cpu = server.cpu_seconds() - cpu
        return Run(seconds, cpu, noise.share)
    finally:
        for client in clients:
            client.kill()
            client.communicate()


def _write(client: subprocess.Popen[str], line: str) -> None:
    assert client.stdin is not None
    client.stdin.write(f"{line}\n")
    client.stdin.flush()


def _line(client: subprocess.Popen[str]) -> str:
    assert client.stdout is not None
    line = client.stdout.readline()
    if not line:
        raise SystemExit("A client failed; its reason stands above.")
    return line


def run_java_producer(
    server: Server, topic: str, records: int, record_bytes: int, config: dict[str, str | int]
) -> Run:
    """Kafka's ProducerPerformance, which writes as fast as it can. It measures its own time."""
    properties = {"bootstrap.servers": server.address, **config}
    command = [*JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-Xmx512M"]
    command += ["-cp", classpath(), "org.apache.kafka.tools.ProducerPerformance"]
    command += ["--topic", topic, "--num-records", str(records), "--throughput", "-1"]
    command += ["--record-size", str(record_bytes), "--producer-props"]
    command += [f"{name}={value}" for name, value in properties.items()]
    with Noise.measured() as noise:
        cpu = server.cpu_seconds()
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=CLIENT_SECONDS
        )
        cpu = server.cpu_seconds() - cpu
    found = re.findall(r"^(\d+) records sent, ([\d.]+) records/sec", done.stdout, re.MULTILINE)
    if done.returncode or not found or int(found[-1][0]) != records:
        raise SystemExit(f"ProducerPerformance failed:\n{done.stdout}\n{done.stderr}")
    return Run(records / float(found[-1][1]), cpu, noise.share)
