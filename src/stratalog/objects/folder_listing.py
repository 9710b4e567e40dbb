"""The files below a folder in the order of their keys, one folder in memory at a time."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from stratalog.objects.keys import RESERVED_PART, is_key


def list_folder(
    root: Path, prefix: str, start_after: str | None
) -> Iterator[tuple[str, os.stat_result]]:
    """List keys that begin with `prefix` and come after `start_after`, with their file status.

    Keys compare by code points, which is the order of their UTF-8 bytes. Files that vanish
    meanwhile are left out.
    """
    folder = prefix[: prefix.rfind("/") + 1]
    yield from _list_below(root, folder, prefix, start_after or "")


def _list_below(
    root: Path, folder: str, prefix: str, start_after: str
) -> Iterator[tuple[str, os.stat_result]]:
    for key in _entries(root, folder):
        if not (key.startswith(prefix) or prefix.startswith(key)):
            continue
        if key.endswith("/"):
            if key > start_after or start_after.startswith(key):
                yield from _list_below(root, key, prefix, start_after)
        elif key > start_after and key.startswith(prefix):
            found = _regular(root / key)
            if found is not None:
                yield key, found


def _entries(root: Path, folder: str) -> list[str]:
    """List the keys in one folder. The key of a folder ends in a slash, to sort as its contents."""
    keys = []
    try:
        with os.scandir(root / folder) as entries:
            for entry in entries:
                key = folder + entry.name
                if entry.name.startswith(RESERVED_PART) and not folder:
                    continue
                if is_key(key):
                    keys.append(f"{key}/" if entry.is_dir(follow_symlinks=False) else key)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(keys)


def _regular(path: Path) -> os.stat_result | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None
