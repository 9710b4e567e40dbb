"""A disk that holds only the bytes and the entries that were synced, and any part of the others.

The model is the weakest that POSIX allows on a journalling file system:

- A sync of a file makes its bytes and its length durable, and nothing else: not its entry.
- A sync of a folder makes the entries in it durable. A rename is in both folders at once, or in
  neither.
- Of the writes that were not synced, any sectors may be on the disk, in any order: a file may be
  longer than its bytes, with zeros between them.
- Of the entries that were not synced, any may be made or removed.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from tests.faults.power.recording import Change

SECTOR_BYTES = 512


class Loss(StrEnum):
    """The part of the unsynced changes that a power cut takes."""

    ALL = "all unsynced changes are lost"
    TORN = "all are kept, but for the last sectors of the last write"
    SOME = "any of them are lost, sector by sector"


@dataclass(frozen=True, slots=True)
class _Write:
    """Bytes at a position, or a new length (`data` is None)."""

    position: int
    data: bytes | None


@dataclass(eq=False, slots=True)
class File:
    durable: bytearray = field(default_factory=bytearray)
    pending: list[_Write] = field(default_factory=list)

    def fail_to_sync(self, *, reached: bool) -> None:
        """The kernel takes the pages for clean, so that no later sync writes them. They may have
        `reached` the disk all the same."""
        if reached:
            self.sync()
        self.pending.clear()

    def sync(self) -> None:
        for write in self.pending:
            _apply(self.durable, write)
        self.pending.clear()


@dataclass(eq=False, slots=True)
class Folder:
    """`durable` are the synced entries, `live` the ones that the process sees."""

    durable: dict[str, "Node"] = field(default_factory=dict)
    live: dict[str, "Node"] = field(default_factory=dict)


Node: TypeAlias = File | Folder
_Entry: TypeAlias = tuple[Folder, str]


@dataclass(eq=False, slots=True)
class _Move:
    """A change of entries: the ones that are set, and the ones that are removed."""

    made: dict[_Entry, Node] = field(default_factory=dict)
    removed: list[_Entry] = field(default_factory=list)

    @property
    def entries(self) -> set[_Entry]:
        return {*self.made, *self.removed}

    def touches(self, folder: Folder) -> bool:
        return any(each is folder for each, _ in self.entries)


class Disk:
    """Replays changes. `cut` writes a state that a power cut after them may leave."""

    def __init__(self, *, failed_syncs_reach: bool = False) -> None:
        self._failed_syncs_reach = failed_syncs_reach
        self._root = Folder()
        self._open: dict[int, Node] = {}
        self._moves: list[_Move] = []
        self._last_write: tuple[File, _Write] | None = None

    def apply(self, change: Change) -> None:
        match change.kind:
            case "o":
                self._open[change.descriptor] = self._opened(change.paths[0])
            case "w":
                self._write(change.descriptor, _Write(change.position, change.data))
            case "t":
                self._write(change.descriptor, _Write(change.position, None))
            case "a":
                self._allocate(change)
            case "s":
                self._sync(self._open[change.descriptor])
            case "f":
                file = self._open[change.descriptor]
                assert isinstance(file, File)
                file.fail_to_sync(reached=self._failed_syncs_reach)
            case "m":
                self._move(_Move(made={self._entry(change.paths[0]): Folder()}))
            case "u":
                self._move(_Move(removed=[self._entry(change.paths[0])]))
            case "l":
                source, target = map(self._entry, change.paths)
                self._move(_Move(made={target: source[0].live[source[1]]}))
            case "r":
                source, target = map(self._entry, change.paths)
                node = source[0].live[source[1]]
                self._move(_Move(made={target: node}, removed=[source]))

    @property
    def unsynced(self) -> int:
        return len(self._moves) + sum(len(file.pending) for file in self._files())

    def cut(self, target: Path, loss: Loss, seed: int) -> None:
        """Write one of the states that the disk may be in."""
        chance = random.Random(seed)
        keep = _keeper(loss, chance)
        entries = _durable_entries(self._root)
        for move in self._moves:
            if keep():
                _perform(move, lambda folder: entries.setdefault(id(folder), {}))
        torn = self._last_write if loss is Loss.TORN else None
        self._save(self._root, target, entries, lambda file: _content(file, loss, chance, torn))

    def _save(
        self,
        folder: Folder,
        target: Path,
        entries: dict[int, dict[str, Node]],
        content: Callable[[File], bytes],
    ) -> None:
        target.mkdir()
        for name, node in entries.get(id(folder), {}).items():
            if isinstance(node, Folder):
                self._save(node, target / name, entries, content)
            elif name.endswith("-shm"):
                # Written through a mapping, of which anything may have reached the disk.
                (target / name).write_bytes(b"\xa5" * 32768)
            else:
                (target / name).write_bytes(content(node))

    def _entry(self, path: str) -> _Entry:
        *above, name = path.split("/")
        folder = self._root
        for part in above:
            inner = folder.live[part]
            assert isinstance(inner, Folder)
            folder = inner
        return folder, name

    def _opened(self, path: str) -> Node:
        if path == ".":
            return self._root
        folder, name = self._entry(path)
        if name not in folder.live:
            self._move(_Move(made={(folder, name): File()}))
        return folder.live[name]

    def _write(self, descriptor: int, write: _Write) -> None:
        file = self._open[descriptor]
        assert isinstance(file, File)
        file.pending.append(write)
        self._last_write = (file, write)

    def _allocate(self, change: Change) -> None:
        file = self._open[change.descriptor]
        assert isinstance(file, File)
        if change.position > _live_length(file):
            self._write(change.descriptor, _Write(change.position, None))

    def _sync(self, node: Node) -> None:
        if isinstance(node, File):
            node.sync()
            return
        wanted = {entry for move in self._moves if move.touches(node) for entry in move.entries}
        # Earlier changes of the same entries are in the journal before the ones that are wanted.
        for move in reversed(self._moves):
            if move.entries & wanted:
                wanted |= move.entries
        for move in self._moves:
            if move.entries & wanted:
                _perform(move, lambda folder: folder.durable)
        self._moves = [move for move in self._moves if not move.entries & wanted]

    def _move(self, move: _Move) -> None:
        _perform(move, lambda folder: folder.live)
        self._moves.append(move)

    def _files(self) -> Iterator[File]:
        yield from _files_below(self._root)


def _files_below(folder: Folder) -> Iterator[File]:
    for node in folder.live.values():
        if isinstance(node, Folder):
            yield from _files_below(node)
        else:
            yield node


def _perform(move: _Move, entries_of: Callable[[Folder], dict[str, Node]]) -> None:
    for folder, name in move.removed:
        entries_of(folder).pop(name, None)
    for (folder, name), node in move.made.items():
        entries_of(folder)[name] = node


def _durable_entries(root: Folder) -> dict[int, dict[str, Node]]:
    """The synced entries of every folder, also of folders whose own entry is not synced."""
    found: dict[int, dict[str, Node]] = {}
    waiting: list[Folder] = [root]
    while waiting:
        folder = waiting.pop()
        if id(folder) not in found:
            found[id(folder)] = dict(folder.durable)
            both: Iterable[Node] = [*folder.durable.values(), *folder.live.values()]
            waiting += [node for node in both if isinstance(node, Folder)]
    return found


def _keeper(loss: Loss, chance: random.Random) -> Callable[[], bool]:
    if loss is Loss.SOME:
        share = chance.random()
        return lambda: chance.random() < share
    return lambda: loss is Loss.TORN


def _content(
    file: File, loss: Loss, chance: random.Random, torn: tuple[File, _Write] | None
) -> bytes:
    if loss is Loss.ALL or not file.pending:
        return bytes(file.durable)
    content = bytearray(file.durable)
    keep = _keeper(loss, chance)
    for write in file.pending:
        if loss is Loss.SOME:
            for part in _sectors(write, chance):
                if keep():
                    _apply(content, part)
        elif torn is not None and torn[1] is write and write.data is not None:
            _apply(content, _Write(write.position, write.data[: _torn_length(write, chance)]))
        else:
            _apply(content, write)
    return bytes(content)


def _torn_length(write: _Write, chance: random.Random) -> int:
    """A length whose end is the end of a sector of the file."""
    assert write.data is not None
    kept = chance.randrange(len(write.data) + 1)
    return max(0, kept - (write.position + kept) % SECTOR_BYTES)


def _sectors(write: _Write, chance: random.Random) -> Iterator[_Write]:
    """The write's new length, which may be on the disk without its bytes, and its sectors.

    Large writes are cut into few parts, any of which may be missing.
    """
    if write.data is None:
        yield write
        return
    step = max(SECTOR_BYTES, len(write.data) // 16 // SECTOR_BYTES * SECTOR_BYTES)
    at = 0
    while at < len(write.data):
        end = min(len(write.data), (write.position + at) // step * step + step - write.position)
        if chance.random() < 0.1:
            yield _Write(write.position + at, bytes(end - at))
        yield _Write(write.position + at, write.data[at:end])
        at = end


def _apply(content: bytearray, write: _Write) -> None:
    if write.data is None:
        if len(content) > write.position:
            del content[write.position :]
        else:
            content.extend(bytes(write.position - len(content)))
        return
    if len(content) < write.position:
        content.extend(bytes(write.position - len(content)))
    content[write.position : write.position + len(write.data)] = write.data


def _live_length(file: File) -> int:
    length = len(file.durable)
    for write in file.pending:
        end = write.position + len(write.data or b"")
        length = end if write.data is None else max(length, end)
    return length
