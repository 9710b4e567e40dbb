"""A process whose changes to a folder are recorded, and the record read back."""

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from stratalog.environment import ENVIRONMENT

SOURCE = Path(__file__).with_name("recorder.c")
ROOT = Path(__file__).parents[3]
_HEAD = struct.Struct("<cqqq")
_WITH_DATA = b"wourml"


class Change(NamedTuple):
    """One call that changed the folder, or may be needed to understand a later one.

    `kind`: open, write, truncate, allocate, sync, failed sync or write, mkdir, unlink, link or
    rename, by its letter in `recorder.c`.
    """

    kind: str
    descriptor: int
    position: int
    data: bytes

    @property
    def paths(self) -> list[str]:
        return [part.decode() for part in self.data.split(b"\0")]


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


def can_record() -> bool:
    return sys.platform == "linux" and compiler() is not None


@cache
def _library() -> Path:
    found = compiler()
    assert found is not None, "a C compiler is needed to record"
    library = Path(mkdtemp(prefix="stratalog-recorder-")) / "recorder.so"
    command = [found, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run([*command, "-lpthread"], check=True)
    return library


def record(
    module: str,
    arguments: Sequence[str],
    *,
    folder: Path,
    log: Path,
    fail: str = "",
    timeout_s: float = 120,
) -> list[Change]:
    """Run a module on a folder, and return the changes that it made below it. `fail` is explained
    in `recorder.c`."""
    environment: Mapping[str, str] = {
        **ENVIRONMENT,
        "LD_PRELOAD": str(_library()),
        "POWER_ROOT": os.path.realpath(folder),
        "POWER_LOG": str(log),
        **({"POWER_FAIL": fail} if fail else {}),
    }
    subprocess.run(
        [sys.executable, "-m", module, os.path.realpath(folder), *arguments],
        check=True,
        cwd=ROOT,
        env=dict(environment),
        timeout=timeout_s,
    )
    return [*_changes(log.read_bytes())]


def _changes(log: bytes) -> Iterator[Change]:
    position = 0
    while position < len(log):
        kind, descriptor, at, size = _HEAD.unpack_from(log, position)
        position += _HEAD.size
        size = size if kind in _WITH_DATA else 0
        yield Change(kind.decode(), descriptor, at, log[position : position + size])
        position += size
