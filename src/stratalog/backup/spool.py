"""The members of a backup as files in a temporary folder, on their way to the store or from it.

A control plane may be larger than the memory, and its snapshot must not wait for uploads.
"""

import io
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import zstandard
from crc32c import crc32c

from stratalog.backup.errors import BackupDamagedError
from stratalog.backup.manifest import Member
from stratalog.control.sql.dump import TableColumns
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import ObjectStore, Range

_PIECE_BYTES = 8 * 1024 * 1024


class Spool:
    """Writes the rows of one table after the other, each into a compressed file of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: _MemberFile | None = None
        self._members: list[Member] = []

    def begin(self) -> None:
        self.close()
        self._members = []
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)

    def table(self, table: TableColumns) -> None:
        self.close()
        self._open = _MemberFile(self._folder, table)

    def rows(self, lines: Iterable[bytes]) -> None:
        assert self._open is not None, "rows come after their table"
        self._open.write(lines)

    def close(self) -> None:
        if self._open is not None:
            self._members.append(self._open.finish())
            self._open = None

    @property
    def members(self) -> list[Member]:
        assert self._open is None, "the last table is not closed yet"
        return self._members


class _MemberFile:
    def __init__(self, folder: Path, table: TableColumns) -> None:
        self._table = table
        self._path = folder / f"{table.name}.jsonl.zst"
        self._file = self._path.open("wb")
        compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
        self._writer = compressor.stream_writer(self._file, closefd=False)
        self._rows = 0

    def write(self, lines: Iterable[bytes]) -> None:
        page = list(lines)
        self._rows += len(page)
        self._writer.write(b"".join(page))

    def finish(self) -> Member:
        self._writer.flush(zstandard.FLUSH_FRAME)
        self._file.close()
        return Member(
            table=self._table.name,
            columns=self._table.columns,
            rows=self._rows,
            size_bytes=self._path.stat().st_size,
            crc32c=_file_crc(self._path),
        )


async def file_parts(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


async def download(store: ObjectStore, key: str, member: Member, folder: Path) -> None:
    """Bring a member into the folder, and check that it is whole."""
    path = folder / member.file_name
    try:
        with path.open("wb") as file:
            for start in range(0, member.size_bytes, _PIECE_BYTES):
                end = min(start + _PIECE_BYTES, member.size_bytes)
                [piece] = await store.get_ranges(key, [Range(start, end)])
                file.write(piece)
    except ObjectNotFoundError as error:
        raise BackupDamagedError(f"{key} is missing in {store.url}") from error
    if _file_crc(path) != member.crc32c:
        raise BackupDamagedError(f"{key}: the checksum is not the one of the manifest")


@contextmanager
def opened_lines(folder: Path, member: Member) -> Iterator[Iterator[bytes]]:
    """Yield the lines of a member that was downloaded."""
    with (folder / member.file_name).open("rb") as file:
        yield _lines(file, member)


def _lines(file: BinaryIO, member: Member) -> Iterator[bytes]:
    count = 0
    try:
        reader = zstandard.ZstdDecompressor().stream_reader(file, closefd=False)
        for line in io.BufferedReader(reader, 1024 * 1024):
            count += 1
            yield line
    except zstandard.ZstdError as error:
        raise BackupDamagedError(f"{member.file_name} cannot be decompressed: {error}") from error
    if count != member.rows:
        raise BackupDamagedError(f"{member.file_name} has {count} rows instead of {member.rows}")


def _file_crc(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            crc = crc32c(piece, crc)
    return crc
