"""The folder in which the JVM of a Spark session keeps its files.

The owner holds a lock on the folder as long as it lives. So the folder of a killed owner can be
recognized, also from within another container that shares the disk. The next process that needs a
folder removes it.
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
"""A folder exists for a moment before it is locked."""


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
        # The folder of another user cannot be opened, and must not be removed.
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
