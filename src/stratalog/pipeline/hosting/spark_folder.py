"""The folder in which a JVM of ours keeps its files.

Its owner holds a lock on it as long as it lives. So what a killed one has left behind is known,
also from within another container that shares the disk, and removed by the next who needs a folder.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from stratalog.clock import SYSTEM_CLOCK

_PREFIX = "stratalog-spark-"
_LOCK = "owner.lock"
_YOUNG_MS = 60_000
"""A folder is there for a moment before it is locked."""


class SparkFolder:
    def __init__(self) -> None:
        for orphan in _orphans(Path(tempfile.gettempdir())):
            shutil.rmtree(orphan, ignore_errors=True)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _orphans(parent: Path) -> Iterator[Path]:
    for folder in parent.glob(f"{_PREFIX}*"):
        # What another user owns cannot be opened, and is not for us to remove.
        with suppress(OSError):
            if _is_left(folder / _LOCK):
                yield folder


def _is_left(lock: Path) -> bool:
    descriptor = os.open(lock, os.O_RDWR)
    try:
        age_ms = SYSTEM_CLOCK.now_ms() - os.fstat(descriptor).st_mtime * 1000
        if age_ms < _YOUNG_MS:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
