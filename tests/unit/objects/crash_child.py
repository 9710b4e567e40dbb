"""Runs one call on a folder's files, again and again, and dies before its first, second, ... step.

A program of its own, because only a process that really dies leaves the remains of a crash. It is
given a folder and the name of the call. Below the folder it makes one store per step.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stratalog.clock import SystemClock
from stratalog.objects.folder_files import FolderFiles
from stratalog.objects.store import Create, Overwrite

STEPS = ("open", "writev", "utime", "fsync", "link", "replace", "unlink", "rmdir", "mkdir", "close")


def call(files: FolderFiles, name: str) -> None:
    match name:
        case "create":
            files.put("a/b/new", [b"new", b"data"], Create(), {"version": "new"})
        case "overwrite":
            files.put("a/b/old", [b"new", b"data"], Overwrite(), {"version": "new"})
        case "stream":
            streamed = files.start_stream()
            streamed.write([b"new"], 0)
            streamed.write([b"data"], 3)
            files.finish_stream("a/b/old", streamed)
        case "delete":
            files.delete("a/b/old")
        case "copy":
            files.copy("a/b/old", "c/d/new", Create())


def die_before(step: int) -> None:
    """Count calls of the operating system, and leave without any cleaning at the given one."""
    made = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            nonlocal made
            made += 1
            if made == step:
                os._exit(9)
            return function(*args, **kwargs)

        return wrapper

    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))


def main(folder: Path, name: str) -> None:
    for step in range(1, 1000):
        files = FolderFiles(folder / f"{step}", clock=SystemClock(), entropy=os.urandom)
        if name != "create":
            files.put("a/b/old", [b"old"], Overwrite(), {"version": "old"})
        child = os.fork()
        if child == 0:
            die_before(step)
            call(files, name)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            print(step)
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
