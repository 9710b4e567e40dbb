"""The code blocks of a page, and a broker to run them against."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WILDCARD = "…"
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Running:
    folder: Path
    bootstrap: str

    def run(self, command: str | list[str], *, seconds: float = 60) -> str:
        environment = {
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "STRATALOG_BOOTSTRAP": self.bootstrap,
            "COLUMNS": "120",
        }
        done = subprocess.run(
            command,
            shell=isinstance(command, str),
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """A broker as `stratalog up` starts it, in a folder of its own."""
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [BIN / "stratalog", "up", "--listen", "127.0.0.1:0"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    try:
        found = re.search(r"up on (\S+),", process.stdout.readline())
        assert found is not None, (tmp_path / "log").read_text()
        yield Running(tmp_path, found[1])
    finally:
        process.terminate()
        process.communicate(timeout=30)


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{language} run\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def matches(expected: str, printed: str) -> bool:
    def words(text: str) -> str:
        return " ".join(text.split())

    pattern = ".*".join(re.escape(piece) for piece in words(expected).split(WILDCARD))
    return re.fullmatch(pattern, words(printed)) is not None
