"""The guards of durability, each of which can be taken out, to see that a power cut shows it."""

import os
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

from stratalog.control.sql import sqlite
from stratalog.objects import durable_files, folder_files


class Guard(StrEnum):
    NONE = "none"
    SQLITE_SYNC = "SQLite's synchronous = FULL is OFF"
    SQLITE_EACH_COMMIT = "SQLite's synchronous = FULL is NORMAL"
    SQLITE_FOLDER = "the entry of the control plane's folder is not synced"
    FILE_SYNC = "the folder store does not sync a file"
    ENTRY_SYNC = "the folder store does not sync the folder of a new file"
    ABOVE_SYNC = "the folder store does not sync the new folders above a new file"


def take_out(guard: Guard) -> None:
    match guard:
        case Guard.SQLITE_SYNC:
            _weaken_sqlite("OFF")
        case Guard.SQLITE_EACH_COMMIT:
            _weaken_sqlite("NORMAL")
        case Guard.SQLITE_FOLDER:
            _replace(sqlite, "make_private_folder", _only_make)
        case Guard.FILE_SYNC:
            _replace(folder_files.FolderFiles, "_seal", _only_stamp)
        case Guard.ENTRY_SYNC:
            _replace(durable_files.DurableFolders, "sync_entry", lambda *_: None)
        case Guard.ABOVE_SYNC:
            _replace(durable_files.DurableFolders, "sync_entry", _sync_nearest)


def _replace(owner: object, name: str, weaker: object) -> None:
    assert hasattr(owner, name)
    setattr(owner, name, weaker)


def _weaken_sqlite(level: str) -> None:
    connect = sqlite._connect

    def weaker(*given: Any) -> Any:
        raw = connect(*given)
        raw.execute(f"PRAGMA synchronous = {level}")
        return raw

    _replace(sqlite, "_connect", weaker)


def _only_make(folder: Path) -> None:
    with suppress(FileExistsError):
        folder.mkdir(parents=True)


def _only_stamp(files: folder_files.FolderFiles, descriptor: int) -> str:
    return folder_files._etag(os.fstat(descriptor))


def _sync_nearest(_: object, file: Path) -> None:
    durable_files.sync_folder(file.parent)
