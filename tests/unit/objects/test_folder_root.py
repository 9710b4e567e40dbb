"""A folder store whose root went away, as a mount does."""

import os
from pathlib import Path

import pytest

from stratalog.clock import SystemClock
from stratalog.objects.errors import FolderGoneError
from stratalog.objects.folder import FolderStore
from stratalog.objects.store import Create


def open_folder(root: Path) -> FolderStore:
    return FolderStore(root, clock=SystemClock(), entropy=os.urandom)


async def test_a_root_that_vanished_is_not_made_again(tmp_path: Path) -> None:
    store = open_folder(tmp_path / "disk")
    (tmp_path / "disk").rename(tmp_path / "unmounted")
    with pytest.raises(FolderGoneError, match="did its mount go away"):
        await store.put("x", [b"1"])
    assert not (tmp_path / "disk").exists()
    await store.close()


async def test_a_folder_below_a_mount_that_went_away_takes_nothing(tmp_path: Path) -> None:
    """It has all folders of a store, because a process was once started without the mount."""
    store = open_folder(tmp_path / "disk")
    await store.put("a/x", [b"1"])
    (tmp_path / "disk").rename(tmp_path / "unmounted")
    await open_folder(tmp_path / "disk").close()
    with pytest.raises(FolderGoneError):
        await store.put("a/y", [b"2"])
    with pytest.raises(FolderGoneError):
        await store.get("a/x")
    assert not (tmp_path / "disk" / "a").exists()
    (tmp_path / "disk").rename(tmp_path / "mount point")
    (tmp_path / "unmounted").rename(tmp_path / "disk")
    await store.put("a/y", [b"2"])
    assert bytes((await store.get("a/x")).data) == b"1"
    await store.close()


async def test_a_mount_that_goes_away_in_mid_put_fails_the_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_folder(tmp_path / "disk")
    real_link = os.link

    def link_and_unmount(source: Path, target: Path) -> None:
        real_link(source, target)
        (tmp_path / "disk").rename(tmp_path / "unmounted")
        (tmp_path / "disk").mkdir()

    monkeypatch.setattr(os, "link", link_and_unmount)
    with pytest.raises(FolderGoneError):
        await store.put("x", [b"1"], mode=Create())
    await store.close()
