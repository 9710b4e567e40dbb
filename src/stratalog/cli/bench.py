"""`stratalog bench`: the speed of a broker, beside the fastest server that the same client knows.

The yardstick is librdkafka's mock cluster, which keeps batches in the client's own memory. Its
figure is the most that a client on this machine can reach, so that the ratio says more about the
broker than either figure does alone.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from stratalog.cli.bench_client import Load
from stratalog.cli.errors import BrokerStartError, MeasurementError
from stratalog.cli.options import Json, Set, examples
from stratalog.cli.output import note, print_json, print_table
from stratalog.cli.produce import Codec
from stratalog.environment import ENVIRONMENT
from stratalog.ids import new_uuid
from stratalog.settings_source import PREFIX
from stratalog.units import parse_size_bytes

EPILOG = examples(
    "stratalog bench",
    "stratalog bench --records 500000 --record-size 200B --codec lz4",
    "stratalog bench --set block.window_ms=50ms",
    "stratalog bench --bootstrap broker.example.com:9092",
)

_ADDRESS = re.compile(r"Stratalog is up on (\S+),")
_STOP_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    records: int
    record_bytes: int
    seconds: float

    @property
    def mb_per_second(self) -> float:
        """Megabytes (10^6 bytes) of values."""
        return self.records * self.record_bytes / self.seconds / 1e6


def measure_produce(load: Load) -> Measurement:
    return _measure("produce", load)


def measure_consume(load: Load) -> Measurement:
    return _measure("consume", load)


_SIDES = ("broker", "mock")
_MEASURES = {"produce": measure_produce, "consume": measure_consume}


def _measure(direction: str, load: Load) -> Measurement:
    command = [sys.executable, "-m", "stratalog.cli.bench_client", direction, load.to_json()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MeasurementError(f"{direction}: {done.stderr.strip().removeprefix('error: ')}")
    return Measurement(
        records=load.records, record_bytes=load.record_bytes, seconds=float(done.stdout)
    )


@dataclass(frozen=True, slots=True)
class TemporaryBroker:
    """A broker in a process and a folder of its own. Its costs are read from Linux's /proc."""

    address: str
    process_id: int

    def cpu_seconds(self) -> float:
        """Processor time that the broker has used, in user and system mode."""
        fields = self._proc("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        return int(self._proc("statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def _proc(self, name: str) -> str:
        return Path(f"/proc/{self.process_id}/{name}").read_text()


@contextmanager
def temporary_broker(
    overrides: Sequence[str] = (), *, program: Sequence[str] = ("-m", "stratalog.cli.main")
) -> Iterator[TemporaryBroker]:
    """Run a broker with these settings alone, and remove it with its data afterwards."""
    with tempfile.TemporaryDirectory(prefix="stratalog-bench-") as folder:
        command = [sys.executable, *program, "up"]
        command += ["--listen", "127.0.0.1:0", "--data", folder]
        for override in overrides:
            command += ["--set", override]
        # Settings of the person who measures must not count: no variables, and no settings file.
        environment = {k: v for k, v in ENVIRONMENT.items() if not k.startswith(PREFIX)}
        # The log goes to a file, because a pipe that nothing empties fills up and stops the broker.
        log_file = Path(folder, "log")
        with log_file.open("w") as log:
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                cwd=folder,
            )
        try:
            yield TemporaryBroker(_address(process, log_file), process.pid)
        finally:
            process.terminate()
            process.communicate(timeout=_STOP_SECONDS)


def _address(process: subprocess.Popen[str], log_file: Path) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        found = _ADDRESS.search(line)
        if found:
            return found[1]
    raise BrokerStartError(f"the broker did not start: {log_file.read_text().strip()}")


def bench(
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            metavar="HOST:PORT",
            help="Measure this broker. Default: a temporary broker on the local disk.",
        ),
    ] = None,
    records: Annotated[int, typer.Option(min=1, help="The number of records.")] = 100_000,
    record_size: Annotated[
        str, typer.Option(metavar="SIZE", help="The size of each value.")
    ] = "1KiB",
    codec: Annotated[Codec, typer.Option(help="The compression of the client.")] = Codec.NONE,
    idempotent: Annotated[
        bool, typer.Option("--idempotent", help="Produce with enable.idempotence.")
    ] = False,
    overrides: Set = None,
    json: Json = False,
) -> None:
    """Measure producing and consuming, and the same against librdkafka's mock cluster.

    The mock cluster stores nothing and lives in the client's memory: its figure is the ceiling of
    client and machine, and the ratio is how near the broker comes. Each measurement runs in a
    fresh client process.
    """
    try:
        record_bytes = parse_size_bytes(record_size)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--record-size") from error
    load = Load(
        bootstrap=None,
        topic=f"bench-{new_uuid().hex[:8]}",
        records=records,
        record_bytes=record_bytes,
        codec=codec.value,
        idempotent=idempotent,
    )
    if bootstrap is not None:
        _report(load, bootstrap, json)
        return
    with temporary_broker(overrides or ()) as broker:
        _report(load, broker.address, json)


def _report(load: Load, bootstrap: str, json: bool) -> None:
    results = {}
    for name, address in zip(_SIDES, (bootstrap, None), strict=True):
        for direction, measure in _MEASURES.items():
            note(f"measuring {direction} against the {name} …")
            results[name, direction] = measure(replace(load, bootstrap=address)).mb_per_second
    ratios = {
        direction: results["broker", direction] / results["mock", direction]
        for direction in _MEASURES
    }
    if json:
        rates = {
            f"{name}_{direction}_mb_per_s": rate for (name, direction), rate in results.items()
        }
        print_json(
            {**rates, **{f"{direction}_ratio": ratio for direction, ratio in ratios.items()}}
        )
    else:
        rows = [
            [name, *(f"{results[name, direction]:.1f}" for direction in _MEASURES)]
            for name in _SIDES
        ]
        rows.append(["ratio", *(f"{ratio:.2f}" for ratio in ratios.values())])
        print_table(["", *(f"{direction} MB/s" for direction in _MEASURES)], rows)
