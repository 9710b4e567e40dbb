"""The files of a folder store, by plain blocking calls.

A file holds an object's plain bytes. A put goes through these steps, and after a crash between
any two of them:

1. write and sync a file in `.stratalog/tmp`: it is left over, invisible, and swept at an opening
   an hour later;
2. write and sync the sidecar, if there is user metadata: it belongs to no version, and is swept;
3. link the file to its key (create), or rename it (overwrite, replace): the object is visible and
   whole, but a loss of power may take it back. The put has not returned, so no caller relies on it;
4. sync the folder and the new folders above it: the put is durable, and returns.

A delete removes the file, then its sidecar, then folders that became empty. A replace compares and
renames while it holds a lock that overwrites and deletes share, in this process or another one.
"""

import errno
import fcntl
import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from stratalog.clock import Clock
from stratalog.errors import StratalogError
from stratalog.ids import Entropy
from stratalog.objects.direct_write import wants_direct, write_direct
from stratalog.objects.durable_files import (
    DurableFolders,
    copy_file,
    make_durable_folder,
    make_private_folder,
    read_cached_views,
    read_exactly,
    read_views,
    write_parts,
)
from stratalog.objects.errors import (
    BadKeyError,
    KeyConflictError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreAccessError,
    StoreFullError,
    StoreUnavailableError,
)
from stratalog.objects.folder_listing import list_folder
from stratalog.objects.keys import RESERVED_PART
from stratalog.objects.mapped import map_bytes
from stratalog.objects.metadata_sidecars import Sidecars
from stratalog.objects.ranges import (
    FOLDER_GAP_BYTES,
    check_length,
    cut_answers,
    plan_reads,
    plan_scatter,
)
from stratalog.objects.store import (
    Buffer,
    Create,
    ObjectInfo,
    Overwrite,
    PutMode,
    Range,
    Replace,
    StoredObject,
)
from stratalog.objects.streamed_file import StreamedFile
from stratalog.objects.write_id import WRITE_ID, without_write_id

Writer = Callable[[int], None]
Getter = Callable[[int, int, int], Buffer]

LEFTOVER_AGE_MS = 60 * 60 * 1000
PLACE_ATTEMPTS = 100
"""Deletes remove empty folders, so a put may have to make its folder again, and again."""

REMEMBERED_WRITES = 10_000
_LOOK_STEP_BYTES = 4 * 1024 * 1024


class FolderFiles:
    def __init__(self, root: Path, *, clock: Clock, entropy: Entropy) -> None:
        self._root = root
        self._clock = clock
        self._entropy = entropy
        own = root / RESERVED_PART
        self._temporaries = own / "tmp"
        self._lock_file = own / "lock"
        self._sidecars = Sidecars(own / "meta")
        make_private_folder(root)
        make_durable_folder(self._temporaries)
        make_durable_folder(own / "meta")
        self._folders = DurableFolders(root)
        self._writes: OrderedDict[str, str] = OrderedDict()

    def close(self) -> None:
        self._folders.close()

    def put(
        self, key: str, parts: Sequence[Buffer], mode: PutMode, metadata: Mapping[str, str]
    ) -> str:
        return self._put(key, partial(_write_object, parts=parts), mode, metadata)

    def _put(self, key: str, writer: Writer, mode: PutMode, metadata: Mapping[str, str]) -> str:
        write_id = metadata.get(WRITE_ID)
        temporary = self._new_temporary()
        try:
            etag = self._write_temporary(temporary, writer)
            placed = self._place_with_sidecar(
                temporary, etag, key, mode, without_write_id(metadata), write_id
            )
        finally:
            temporary.unlink(missing_ok=True)
        self._remember_write(write_id, placed)
        self._folders.sync_entry(self._root / key)
        return placed

    def start_stream(self) -> StreamedFile:
        """Make a temporary file of which nothing is on the disk yet."""
        return StreamedFile(self._new_temporary())

    def finish_stream(self, key: str, streamed: StreamedFile) -> int:
        """Put the written bytes under the key, by the same steps as any other put."""
        try:
            etag = self._seal(streamed.finish())
            self._place_with_sidecar(streamed.path, etag, key, Overwrite(), {}, None)
        finally:
            streamed.abandon()
        self._folders.sync_entry(self._root / key)
        return streamed.size_bytes

    def _new_temporary(self) -> Path:
        self._folders.check_root()
        return self._temporaries / self._entropy(16).hex()

    def _write_temporary(self, temporary: Path, writer: Writer) -> str:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            writer(descriptor)
            return self._seal(descriptor)
        finally:
            os.close(descriptor)

    def _seal(self, descriptor: int) -> str:
        """Make a written file durable, and return the ETag that it will have."""
        stamp_ns = self._stamp_ns()
        os.utime(descriptor, ns=(stamp_ns, stamp_ns))
        os.fsync(descriptor)
        return _etag(os.fstat(descriptor))

    def _stamp_ns(self) -> int:
        """Return the current time, with random digits below the millisecond.

        The kernel's own stamps are some milliseconds coarse and inodes are reused at once, so two
        versions in quick succession could have had the same ETag.
        """
        return self._clock.now_ms() * 1_000_000 + int.from_bytes(self._entropy(4)) % 1_000_000

    def _place_with_sidecar(
        self,
        temporary: Path,
        etag: str,
        key: str,
        mode: PutMode,
        metadata: Mapping[str, str],
        write_id: str | None,
    ) -> str:
        """Return the ETag in place afterwards: an earlier one if this put is a repetition."""
        placed = None
        try:
            self._sidecars.write(etag, key, metadata)
            placed = self._place(temporary, self._root / key, mode, write_id) or etag
        finally:
            if placed != etag:
                self._sidecars.remove(etag)
        return placed

    def _place(
        self, temporary: Path, target: Path, mode: PutMode, write_id: str | None
    ) -> str | None:
        place = self._link if isinstance(mode, Create) else partial(self._rename, mode)
        for _ in range(PLACE_ATTEMPTS):
            with suppress(FileNotFoundError):
                self._make_parents(target)
                return place(temporary, target, write_id)
        raise StoreUnavailableError(f"put {target}: its folder keeps vanishing")

    def _make_parents(self, target: Path) -> None:
        try:
            self._folders.make(target.parent)
        except (FileExistsError, NotADirectoryError):
            if any(parent.is_file() for parent in target.parents):
                raise KeyConflictError(f"put {target}: a part of this path is an object") from None
            # The folder was there and is gone: a delete has just removed it.
            raise FileNotFoundError(target.parent) from None

    def _link(self, temporary: Path, target: Path, write_id: str | None) -> str | None:
        try:
            os.link(temporary, target)
        except FileExistsError:
            found = target.stat()
            if stat.S_ISDIR(found.st_mode):
                raise KeyConflictError(f"put {target}: there are objects below it") from None
            # A network file system may have linked and lost its own reply.
            if os.path.samestat(found, temporary.stat()):
                return None
            if not self._is_own(write_id, _etag(found)):
                raise ObjectExistsError(f"put {target}: the key is taken") from None
            return _etag(found)
        return None

    def _rename(
        self, mode: PutMode, temporary: Path, target: Path, write_id: str | None
    ) -> str | None:
        with self._locked(exclusive=isinstance(mode, Replace)):
            current = self._current_etag(target)
            if isinstance(mode, Replace) and current != mode.etag:
                if current is None or not self._is_own(write_id, current):
                    raise ObjectChangedError(f"put {target}: not the expected version")
                return current
            try:
                os.replace(temporary, target)
            except IsADirectoryError:
                raise KeyConflictError(f"put {target}: there are objects below it") from None
        if current is not None:
            self._sidecars.remove(current)
        return None

    def _remember_write(self, write_id: str | None, etag: str) -> None:
        """Note a write id, in memory only: a put is repeated by this process or not at all."""
        if write_id is not None:
            self._writes[write_id] = etag
            while len(self._writes) > REMEMBERED_WRITES:
                self._writes.popitem(last=False)

    def _is_own(self, write_id: str | None, etag: str) -> bool:
        return write_id is not None and self._writes.get(write_id) == etag

    def _current_etag(self, target: Path) -> str | None:
        try:
            return _etag(target.stat())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def get(self, key: str) -> StoredObject:
        with self._opened(key) as (descriptor, info):
            data = read_exactly(descriptor, 0, info.size_bytes)
            if info.size_bytes:
                check_length(key, Range(0, info.size_bytes), len(data))
        return StoredObject(info=info, data=data)

    def head(self, key: str) -> ObjectInfo:
        with self._opened(key) as (_, info):
            return info

    def get_ranges(self, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        return self._get_ranges(key, ranges, read_exactly)

    def map_ranges(self, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        """Return the ranges without a copy, for callers that only read them."""
        return self._get_ranges(key, ranges, _map_or_read)

    def seems_cached(self, key: str, ranges: Sequence[Range]) -> bool:
        """Return True if the page cache has sampled bytes of each range, the last one among
        them."""
        byte = memoryview(bytearray(1))
        with self._opened_file(key) as descriptor:
            return all(
                read_cached_views(descriptor, [byte], at)
                for each in ranges
                for at in (*range(each.start, each.end, _LOOK_STEP_BYTES), each.end - 1)
            )

    def _get_ranges(self, key: str, ranges: Sequence[Range], get: Getter) -> list[Buffer]:
        plan = plan_reads(ranges, FOLDER_GAP_BYTES)
        with self._opened_file(key) as descriptor:
            answers = [
                get(descriptor, request.start, request.end - request.start)
                for request in plan.requests
            ]
        return cut_answers(key, ranges, plan, answers)

    def read_into(self, key: str, ranges: Sequence[Range], into: Sequence[memoryview]) -> None:
        with self._opened_file(key) as descriptor:
            for scatter in plan_scatter(ranges, into, FOLDER_GAP_BYTES):
                request = scatter.request
                check_length(key, request, read_views(descriptor, scatter.views, request.start))

    def read_cached_into(
        self, key: str, ranges: Sequence[Range], into: Sequence[memoryview]
    ) -> bool:
        """Read without waiting for the disk. False if not all bytes are in the page cache."""
        with self._opened_file(key) as descriptor:
            return all(
                read_cached_views(descriptor, scatter.views, scatter.request.start)
                for scatter in plan_scatter(ranges, into, FOLDER_GAP_BYTES)
            )

    def copy(self, source: str, target: str, mode: PutMode) -> None:
        with self._opened(source) as (descriptor, info):
            self._put(target, partial(copy_file, descriptor), mode, info.metadata)

    @contextmanager
    def _opened(self, key: str) -> Iterator[tuple[int, ObjectInfo]]:
        """Open a file with its metadata, both of the same version.

        Without a sidecar there is no metadata, or this version was just replaced and its sidecar
        removed. In the latter case the path leads elsewhere by now.
        """
        while True:
            with self._opened_file(key) as descriptor:
                status = os.fstat(descriptor)
                etag = _etag(status)
                metadata = self._sidecars.read(etag)
                if metadata is not None or self._current_etag(self._root / key) == etag:
                    yield descriptor, _info(key, status, metadata or {})
                    return

    @contextmanager
    def _opened_file(self, key: str) -> Iterator[int]:
        try:
            descriptor = os.open(self._root / key, os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            self._folders.check_root()
            raise ObjectNotFoundError(f"get {key!r}: there is no such object") from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ObjectNotFoundError(f"get {key!r}: this is a folder, not an object")
            yield descriptor
        finally:
            os.close(descriptor)

    def delete(self, key: str) -> None:
        target = self._root / key
        with suppress(FileNotFoundError, NotADirectoryError), self._locked(exclusive=False):
            found = target.stat()
            if stat.S_ISREG(found.st_mode):
                target.unlink()
                self._sidecars.remove(_etag(found))
        with suppress(OSError):
            for folder in target.parents:
                if folder == self._root:
                    break
                folder.rmdir()

    @contextmanager
    def _locked(self, *, exclusive: bool) -> Iterator[None]:
        descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            yield
        finally:
            os.close(descriptor)

    def list(self, prefix: str, start_after: str | None) -> Iterator[ObjectInfo]:
        for key, status in list_folder(self._root, prefix, start_after):
            yield _info(key, status, {})

    def sweep_leftovers(self) -> None:
        """Remove leftovers of crashes. A younger file can belong to a put under way."""
        before_ms = self._clock.now_ms() - LEFTOVER_AGE_MS
        for path in self._temporaries.iterdir():
            with suppress(FileNotFoundError):
                if path.stat().st_mtime_ns // 1_000_000 < before_ms:
                    path.unlink()
        for etag, key in self._sidecars.all_before(before_ms):
            if key is None or self._current_etag(self._root / key) != etag:
                self._sidecars.remove(etag)


def _etag(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def _info(key: str, status: os.stat_result, metadata: Mapping[str, str]) -> ObjectInfo:
    return ObjectInfo(
        key=key,
        size_bytes=status.st_size,
        modified_ms=status.st_mtime_ns // 1_000_000,
        etag=_etag(status),
        metadata=metadata,
    )


@contextmanager
def explained(doing: str, key: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _explain(error, f"{doing} {key!r}: {error.strerror}") from error


def _explain(error: OSError, what: str) -> StratalogError:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return StoreFullError(what)
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return StoreAccessError(what)
        case errno.ENAMETOOLONG | errno.ELOOP:
            return BadKeyError(what)
        case _:
            return StoreUnavailableError(what)


def _map_or_read(descriptor: int, start: int, length: int) -> Buffer:
    return map_bytes(descriptor, start, length) or read_exactly(descriptor, start, length)


def _write_object(descriptor: int, parts: Sequence[Buffer]) -> None:
    size_bytes = sum(len(part) for part in parts)
    if not (wants_direct(size_bytes) and write_direct(descriptor, parts)):
        write_parts(descriptor, parts)
