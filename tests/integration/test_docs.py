"""What the documentation shows is run, and must print what the documentation says."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = ["README.md", "docs/getting-started.md"]
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


def sessions(page: str) -> Iterator[tuple[str, str]]:
    """Each command that a page shows, with what it says that the command prints."""
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def matches(expected: str, printed: str) -> bool:
    def words(text: str) -> str:
        return " ".join(text.split())

    pattern = ".*".join(re.escape(piece) for piece in words(expected).split(WILDCARD))
    return re.fullmatch(pattern, words(printed)) is not None


@pytest.mark.parametrize("page", PAGES)
def test_every_command_prints_what_the_page_says(page: str, running: Running) -> None:
    ran = 0
    for command, expected in sessions(page):
        printed = running.run(command)
        assert matches(expected, printed), f"$ {command}\n{printed}\ninstead of\n{expected}"
        ran += 1
    assert ran


def test_the_client_example_reads_what_it_wrote(running: Running) -> None:
    running.run("stratalog topic create orders --partitions 3")
    (example,) = [code for code in blocks(PAGES[1], "python") if "Consumer(" in code]
    code = example.replace("localhost:9092", running.bootstrap)
    assert running.run([sys.executable, "-c", code]) == "0 b'jar'\n"


@pytest.mark.parametrize(
    "page",
    sorted(str(p.relative_to(ROOT)) for p in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))),
)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text()):
        assert (ROOT / page).parent.joinpath(target).exists(), target
