"""Compiled loops can be imported wherever the package lies, and are kept where that is safe."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
from numba import int64
from stratalog.batch.code_cache import compiled

@compiled(int64(int64))
def double(value: int) -> int:
    return 2 * value
"""
CALL = """
import sys
from module import double
print(double(21), sum(double.stats.cache_hits.values()))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "module.py").write_text(MODULE)
    return tmp_path


def forbid_writing(folder: Path) -> None:
    """Files stand where folders should, which stops also a user who may write everywhere."""
    (folder / "__pycache__").write_text("")
    (folder / "home").write_text("")


def call(folder: Path) -> list[str]:
    """Return the result of the function, and how often it was found in the cache."""
    (folder / "temporary").mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "HOME": str(folder / "home"),
        "XDG_CACHE_HOME": str(folder / "home"),
        "TMPDIR": str(folder / "temporary"),
        "PYTHONPATH": str(folder),
    }
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", CALL], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def temporary_folder(folder: Path) -> Path:
    return folder / "temporary" / f"stratalog-code-{os.getuid()}"


def test_a_read_only_installation_is_cached_among_temporary_files(folder: Path) -> None:
    forbid_writing(folder)
    assert call(folder) == ["42", "0"]
    assert temporary_folder(folder).stat().st_mode & 0o777 == 0o700
    assert call(folder) == ["42", "1"]


def test_code_is_neither_read_from_nor_written_to_a_folder_that_others_can_write_to(
    folder: Path,
) -> None:
    forbid_writing(folder)
    shared = temporary_folder(folder)
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    assert call(folder) == ["42", "0"]
    assert list(shared.iterdir()) == []
