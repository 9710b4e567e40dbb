"""A cluster in one folder loses its power at any step of its work.

The long run is `python -m tests.faults.power_cuts`.
"""

import errno
from pathlib import Path

import pytest
from tests.faults.power.cuts import (
    Cut,
    choose,
    first_acknowledgement,
    record_work,
    try_cuts,
)
from tests.faults.power.disk import Disk, Loss
from tests.faults.power.guards import Guard
from tests.faults.power.history import Scope
from tests.faults.power.recording import Change, can_record

STATES = 60
SEED = 1

needs_compiler = pytest.mark.skipif(
    not can_record(), reason="no C compiler here (cc or gcc), or not Linux: nothing can be recorded"
)


@needs_compiler
def test_nothing_acknowledged_is_lost_by_a_power_cut_at_any_step(quick_folder: Path) -> None:
    changes = record_work(quick_folder)
    outcome = try_cuts(changes, choose(changes, states=STATES, seed=SEED))
    assert [str(violation) for violation in outcome.violations] == []
    assert outcome.states.total() == STATES
    assert {"", "produce", "merge", "split", "sweep"} <= set(outcome.states)


@needs_compiler
@pytest.mark.parametrize("guard", [guard for guard in Guard if guard is not Guard.NONE])
def test_a_power_cut_shows_a_missing_guard(quick_folder: Path, guard: Guard) -> None:
    changes = record_work(quick_folder, guard)
    begin = first_acknowledgement(changes)
    cuts = choose(changes, states=STATES, seed=SEED, begin=begin)
    outcome = try_cuts(changes, cuts, stop_at_first=True)
    assert outcome.violations, f"not noticed: {guard}"


@needs_compiler
@pytest.mark.parametrize(
    ("kind", "count", "error"),
    [
        pytest.param("s", 1, errno.EIO, id="a sync fails"),
        pytest.param("s", 3, errno.EIO, id="syncs fail"),
        pytest.param("w", 2, errno.EIO, id="writes fail"),
        pytest.param("w", 2, errno.ENOSPC, id="the disk is full"),
    ],
)
def test_acknowledged_batches_outlive_a_disk_that_fails_and_a_power_cut_after_it(
    quick_folder: Path, kind: str, count: int, error: int
) -> None:
    """The commits of SQLite fail for a while. After a failed sync, the disk has all or nothing of
    the bytes, and no later sync writes them."""
    calm = record_work(quick_folder, scope=Scope.PRODUCERS)
    first = calls_before_acknowledgement(calm, kind) + 3
    fail = f"{kind} control.db-wal {first} {count} {error}"
    changes = record_work(quick_folder, scope=Scope.PRODUCERS, fail=fail)
    failed = [at for at, change in enumerate(changes) if change.kind in "fx"]
    assert len(failed) == count
    cuts = [Cut(at, loss, SEED) for at in (failed[-1] + 1, len(changes)) for loss in Loss]
    for reached in (False, True):
        outcome = try_cuts(changes, cuts, failed_syncs_reach=reached)
        assert [str(violation) for violation in outcome.violations] == []


def calls_before_acknowledgement(changes: list[Change], kind: str) -> int:
    """How often SQLite wrote or synced its log by then."""
    logs: set[int] = set()
    calls = 0
    for change in changes[: first_acknowledgement(changes)]:
        if change.kind == "o":
            is_log = change.paths[0].endswith("control.db-wal")
            logs = logs | {change.descriptor} if is_log else logs - {change.descriptor}
        calls += change.kind == kind and change.descriptor in logs
    return calls


def opened(path: str, descriptor: int = 3) -> Change:
    return Change("o", descriptor, 0, path.encode())


def written(data: bytes, position: int = 0, descriptor: int = 3) -> Change:
    return Change("w", descriptor, position, data)


def synced(descriptor: int = 3) -> Change:
    return Change("s", descriptor, 0, b"")


def left_by(folder: Path, changes: list[Change], loss: Loss = Loss.ALL) -> dict[str, bytes]:
    disk = Disk()
    for change in changes:
        disk.apply(change)
    disk.cut(folder / "cut", loss, SEED)
    files = [path for path in (folder / "cut").rglob("*") if path.is_file()]
    return {str(path.relative_to(folder / "cut")): path.read_bytes() for path in files}


def test_a_synced_file_without_a_synced_entry_is_gone(tmp_path: Path) -> None:
    assert left_by(tmp_path, [opened("a"), written(b"x"), synced()]) == {}


def test_a_synced_entry_without_a_synced_file_is_empty(tmp_path: Path) -> None:
    changes = [opened("a"), written(b"x"), opened(".", 4), synced(4)]
    assert left_by(tmp_path, changes) == {"a": b""}


def test_only_writes_before_the_sync_are_kept(tmp_path: Path) -> None:
    changes = [opened("a"), written(b"x"), synced(), written(b"y", 1), opened(".", 4), synced(4)]
    assert left_by(tmp_path, changes) == {"a": b"x"}


def test_a_rename_that_is_not_synced_leaves_the_old_name(tmp_path: Path) -> None:
    entry = [opened("a"), written(b"x"), synced(), opened(".", 4), synced(4)]
    renamed = Change("r", 0, 0, b"a\0b")
    assert left_by(tmp_path, [*entry, renamed]) == {"a": b"x"}


def test_a_rename_into_another_folder_is_in_both_folders_or_in_neither(tmp_path: Path) -> None:
    changes = [
        Change("m", 0, 0, b"f"),
        opened("a"),
        written(b"x"),
        synced(),
        opened(".", 4),
        synced(4),
        Change("r", 0, 0, b"a\0f/b"),
        opened("f", 5),
        synced(5),
    ]
    assert left_by(tmp_path, changes) == {"f/b": b"x"}


def test_a_file_in_a_folder_whose_entry_is_not_synced_is_gone(tmp_path: Path) -> None:
    changes = [Change("m", 0, 0, b"f"), opened("f/a"), synced(), opened("f", 4), synced(4)]
    assert left_by(tmp_path, changes) == {}


def test_a_removal_that_is_not_synced_is_undone(tmp_path: Path) -> None:
    changes = [opened("a"), synced(), opened(".", 4), synced(4), Change("u", 0, 0, b"a")]
    assert left_by(tmp_path, changes) == {"a": b""}


def test_the_last_write_is_torn_at_a_sector(tmp_path: Path) -> None:
    changes = [opened("a"), written(b"x" * 512), written(b"y" * 2048, 512)]
    content = left_by(tmp_path, changes, Loss.TORN)["a"]
    assert content.startswith(b"x" * 512)
    assert len(content) < 2560
    assert len(content) % 512 == 0
