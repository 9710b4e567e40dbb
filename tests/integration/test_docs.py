"""The examples of the documentation are run, and must print the shown output."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.page_runner import ROOT, Running, blocks, matches, running

__all__ = ["running"]

DOCS = ROOT / "docs"
PAGES = ["README.md", "docs/getting-started.md"]


def sessions(page: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a page with its shown output."""
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


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
    # The page sends its reader to the group of the example.
    assert "orders" in running.run("stratalog group describe docs")


@pytest.mark.parametrize(
    "page",
    sorted(str(p.relative_to(ROOT)) for p in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))),
)
def test_links_lead_somewhere(page: str) -> None:
    for target, heading in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", (ROOT / page).read_text()):
        found = (ROOT / page).parent / target if target else ROOT / page
        assert found.exists(), target
        assert not heading or heading in anchors(found), f"{target}#{heading}"


def anchors(page: Path) -> set[str]:
    """Return the addresses of a page's headings, as Markdown viewers make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
