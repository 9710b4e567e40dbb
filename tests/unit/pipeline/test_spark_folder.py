import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from stratalog.pipeline.hosting.spark_folder import SparkFolder


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def make_old(folder: Path) -> None:
    os.utime(folder / "owner.lock", (0, 0))


def test_a_folder_that_is_removed_leaves_nothing(parent: Path) -> None:
    folder = SparkFolder()
    (folder.path / "spark.log").write_text("much")
    folder.remove()
    assert list(parent.iterdir()) == []


def test_what_a_killed_owner_left_is_removed_by_the_next(parent: Path) -> None:
    code = (
        "import os, tempfile; tempfile.tempdir = os.sys.argv[1];"
        "from stratalog.pipeline.hosting.spark_folder import SparkFolder;"
        "folder = SparkFolder(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(parent)], check=False)
    [left] = parent.iterdir()
    young = SparkFolder()
    assert left.exists(), "its owner may be about to lock it"
    make_old(left)
    young.remove()
    SparkFolder().remove()
    assert list(parent.iterdir()) == []


def test_the_folder_of_one_who_lives_and_those_of_strangers_stay(parent: Path) -> None:
    living = SparkFolder()
    make_old(living.path)
    stranger = parent / "stratalog-spark-of-old"
    stranger.mkdir()
    SparkFolder().remove()
    assert set(parent.iterdir()) == {living.path, stranger}
    living.remove()
