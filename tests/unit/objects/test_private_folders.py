"""Data is readable by the user of the broker alone, unless an operator decided otherwise."""

import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_IMODE

import pytest

from stratalog.clock import SystemClock
from stratalog.control.open import open_control_plane
from stratalog.objects.open import open_store


@pytest.fixture(autouse=True)
def usual_mask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return S_IMODE(path.stat().st_mode)


async def test_new_folders_and_databases_are_the_owners_alone(tmp_path: Path) -> None:
    data = tmp_path / "below" / "data"
    store = open_store(f"file:{data / 'objects'}", clock=SystemClock())
    await store.put("blocks/one", [b"1"])
    plane = await open_control_plane(f"sqlite:{data / 'control.db'}")
    await plane.topics.create("t", partition_count=1, configs={})
    folders = [mode(folder) for folder in (tmp_path / "below", data, data / "objects")]
    files = [mode(file) for file in data.glob("control.db*")]
    await plane.close()
    await store.close()
    assert folders == [0o700] * 3
    assert files == [0o600] * 3


async def test_a_folder_that_exists_keeps_its_permissions(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    store = open_store(f"file:{shared}", clock=SystemClock())
    await store.put("blocks/one", [b"1"])
    await store.close()
    assert mode(shared) == mode(shared / "blocks") == 0o755
