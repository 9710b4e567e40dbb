"""The notebook in docs/dataframes.md is run from top to bottom, and prints the shown output."""

import json
import re
import sys

import pytest
from tests.integration.page_runner import ROOT, Running, matches, running

from stratalog.spark.option_table import ISOLATION, OPTIONS
from stratalog.spark.sink_options import SINK_OPTIONS

__all__ = ["running"]

_CELL = re.compile(
    r"^```python run\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)

_NOTEBOOK = """
import contextlib, io, json, sys

printed = []
names = {"__name__": "__main__"}
for cell in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(cell, "docs/dataframes.md", "exec"), names)
    printed.append(out.getvalue())
json.dump(printed, sys.stdout)
"""


@pytest.mark.timeout(300)
def test_every_cell_prints_what_the_page_says(running: Running) -> None:
    page = (ROOT / "docs/dataframes.md").read_text()
    cells = [(code, said) for code, said in _CELL.findall(page)]
    assert len(cells) > 5
    codes = [code.replace("localhost:9092", running.bootstrap) for code, _ in cells]
    (running.folder / "notebook.py").write_text(_NOTEBOOK)
    (running.folder / "cells.json").write_text(json.dumps(codes))
    printed = json.loads(running.run(f"{sys.executable} notebook.py < cells.json", seconds=280))
    for (code, said), out in zip(cells, printed, strict=True):
        assert matches(said, out), f"{code}\nprinted\n{out}\ninstead of\n{said}"


def test_the_tables_name_every_option() -> None:
    page = (ROOT / "docs/dataframes.md").read_text()
    reading, writing = page.split("\nFor reading.")[1].split("\nFor writing.")
    named = {
        part: re.findall(r"^\| `([\w.]+)` \|", part, re.MULTILINE) for part in (reading, writing)
    }
    assert sorted(named[reading]) == sorted((*OPTIONS, ISOLATION))
    assert sorted(named[writing]) == sorted(SINK_OPTIONS)
