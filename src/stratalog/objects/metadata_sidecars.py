"""User metadata of files, which portable file systems cannot hold themselves.

A sidecar is named for one version of one file (its ETag), and is durable before that version
becomes visible. Data and metadata therefore change in one step. Only files with metadata have one.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from stratalog.objects.durable_files import sync_folder, write_parts


class Sidecars:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, etag: str, key: str, metadata: Mapping[str, str]) -> None:
        if not metadata:
            return
        text = json.dumps({"key": key, "metadata": dict(metadata)})
        descriptor = os.open(self._folder / etag, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            write_parts(descriptor, [text.encode()])
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_folder(self._folder)

    def read(self, etag: str) -> dict[str, str] | None:
        try:
            text = (self._folder / etag).read_text()
        except FileNotFoundError:
            return None
        metadata: dict[str, str] = json.loads(text)["metadata"]
        return metadata

    def remove(self, etag: str) -> None:
        (self._folder / etag).unlink(missing_ok=True)

    def all_before(self, time_ms: int) -> Iterator[tuple[str, str | None]]:
        """ETag and key of each sidecar last written before; no key if a crash left it in part."""
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):
                if path.stat().st_mtime_ns // 1_000_000 < time_ms:
                    yield path.name, _key_in(path)


def _key_in(sidecar: Path) -> str | None:
    try:
        key: str = json.loads(sidecar.read_text())["key"]
    except (ValueError, KeyError):
        return None
    return key
