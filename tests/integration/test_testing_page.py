"""The examples of `docs/testing.md` are test files: each of them passes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/testing.md"
EXAMPLES = re.findall(r"^```python run\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_each_example_of_the_page_passes(number: int, tmp_path: Path) -> None:
    (tmp_path / "test_example.py").write_text(EXAMPLES[number])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
