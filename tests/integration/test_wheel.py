"""The wheel as a stranger installs it: without extras, in a fresh environment."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CEILING_MB = 560
"""Of the base install, on Linux and Python 3.11. A ratchet: lower it when the install shrinks."""
SPARK_LINE = "pip install 'stratalog[spark]'"
TOOLS = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "wheel", "pytest", "_pytest")
FIXTURE_TEST = """
from confluent_kafka import Producer

def test_it(stratalog_broker):
    producer = Producer({"bootstrap.servers": stratalog_broker.bootstrap, "log_level": 0})
    producer.produce("events", b"hello")
    assert producer.flush(20) == 0
"""
READ = """
import stratalog
reader = stratalog.read("greetings")
print([value.as_py() for batch in reader for value in batch.column("value")])
"""


@dataclass(frozen=True, slots=True)
class Installed:
    python: Path
    folder: Path
    """An empty working folder, so that nothing of the source tree is found."""

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.python), *arguments],
            input=stdin,
            cwd=self.folder,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=100,
        )

    def stratalog(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return self.run("-m", "stratalog.cli.main", *arguments, stdin=stdin)

    @property
    def packages(self) -> Path:
        [packages] = self.python.parents[1].glob("lib/python3*/site-packages")
        return packages


def clean_environment() -> dict[str, str]:
    """Without the variables by which this run finds its sources and settings."""
    dropped = ("PYTHON", "PYTEST", "STRATALOG", "COV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | {"NO_COLOR": "1", "COLUMNS": "400"}


def call(*command: str | Path) -> None:
    subprocess.run(
        [str(part) for part in command], env=clean_environment(), check=True, cwd=ROOT, timeout=280
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    call(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder / "dist", ROOT)
    [wheel] = (folder / "dist").glob("stratalog-*.whl")
    call(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    call(python, "-m", "pip", "install", "-q", "--no-compile", wheel, "pytest")
    (folder / "work").mkdir()
    return Installed(python, folder / "work")


@contextmanager
def broker(installed: Installed) -> Iterator[str]:
    """Run `stratalog up` on a free port until the block ends. It names the missing extra once."""
    command = [str(installed.python), "-u", "-m", "stratalog.cli.main", "up", "-l", "127.0.0.1:0"]
    process = subprocess.Popen(
        command,
        cwd=installed.folder,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            if found := re.search(r"bootstrap.servers=(\S+?)\. ", line):
                break
        assert found, "".join(said)
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=30)
        said.append(rest)
    output = "".join(said)
    assert process.returncode == 0, output
    assert output.count(SPARK_LINE) == 1, output
    assert "aged" in output, output
    assert "Traceback" not in output


@pytest.mark.timeout(300)
def test_the_base_install_stays_below_its_ceiling(installed: Installed) -> None:
    sizes = {
        entry.name: sum(
            file.lstat().st_size for file in (entry, *entry.rglob("*")) if file.is_file()
        )
        for entry in installed.packages.iterdir()
        if not entry.name.startswith(TOOLS)
    }
    total_mb = sum(sizes.values()) / 1_000_000
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:12]
    print(f"base install: {total_mb:.0f} MB;", *(f"{n} {b / 1e6:.0f}" for n, b in largest))
    assert total_mb <= CEILING_MB


def test_the_command_line_serves_produces_consumes_and_reads(installed: Installed) -> None:
    with broker(installed) as bootstrap:
        produced = installed.stratalog("produce", "greetings", "-b", bootstrap, stdin="hello\n")
        assert produced.returncode == 0, produced.stderr
        consumed = installed.stratalog(
            "consume", "greetings", "--from-beginning", "--max", "1", "-b", bootstrap
        )
        assert consumed.stdout == "hello\n", consumed.stderr
        read = installed.run("-c", READ)
    assert read.stdout == "[b'hello']\n", read.stderr


def test_the_fixture_gives_a_broker(installed: Installed) -> None:
    (installed.folder / "test_it.py").write_text(FIXTURE_TEST)
    result = installed.run("-m", "pytest", "-q", "test_it.py")
    assert result.returncode == 0, result.stdout


def test_help_and_broker_load_nothing_of_the_extras(installed: Installed) -> None:
    code = "import sys, stratalog.cli.main, stratalog.node.broker; print(*sorted(sys.modules))"
    loaded = set(installed.run("-c", code).stdout.split())
    assert "stratalog.node.broker" in loaded
    assert loaded.isdisjoint({"numba", "pyarrow", "pyspark", "pandas"})


@pytest.mark.parametrize("name", ["stratalog.spark", "pyspark_stratalog"])
def test_an_import_names_the_line_that_installs_its_extra(installed: Installed, name: str) -> None:
    result = installed.run("-c", f"import {name}")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].endswith(SPARK_LINE)


def test_a_command_names_the_line_that_installs_its_extra(installed: Installed) -> None:
    result = installed.stratalog("pipeline", "run")
    assert result.returncode == 1
    assert SPARK_LINE in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
