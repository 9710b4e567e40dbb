"""Adds one to a number in a folder store, many times, by compare and replace."""

import os
import sys
from pathlib import Path

from stratalog.clock import SystemClock
from stratalog.objects.errors import ObjectChangedError
from stratalog.objects.folder_files import FolderFiles
from stratalog.objects.store import Replace


def add_one(files: FolderFiles) -> bool:
    stored = files.get("n")
    number = int(bytes(stored.data)) + 1
    try:
        files.put("n", [b"%d" % number], Replace(etag=stored.info.etag), {"n": f"{number}"})
    except ObjectChangedError:
        return False
    return True


def main(folder: Path, times: int) -> None:
    files = FolderFiles(folder, clock=SystemClock(), entropy=os.urandom)
    added = 0
    while added < times:
        added += add_one(files)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
