import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.objects.direct_write import wants_direct, write_direct
from stratalog.objects.memory import IN_PLACE_BYTES, PAGE_BYTES, memory_for
from stratalog.objects.store import Buffer

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("direct") / "file"


def written(file: Path, parts: Sequence[Buffer]) -> tuple[bool, bytes]:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        done = write_direct(descriptor, parts)
        os.fsync(descriptor)
        return done, file.read_bytes()
    finally:
        os.close(descriptor)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.integers(0, 3 * MIB) | st.sampled_from([0, 1, 4095, 4096, 4097, 2 * MIB, 2 * MIB + 1]),
        max_size=4,
    )
)
def test_the_file_holds_exactly_the_parts(file: Path, sizes: list[int]) -> None:
    parts = [os.urandom(size) for size in sizes]
    done, found = written(file, parts)
    assert not done or found == b"".join(parts)


def test_only_large_files_want_it() -> None:
    assert not wants_direct(256 * 1024 - 1)
    assert wants_direct(256 * 1024)


def test_a_file_system_that_cannot_leaves_the_file_as_it_was(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.fcntl

    def refuse(descriptor: int, command: int, flags: int = 0) -> int:
        if command == fcntl.F_SETFL:
            raise OSError(errno.EINVAL, "no direct writes here")
        return real(descriptor, command, flags)

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    assert written(file, [bytes(MIB)]) == (False, b"")


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 200_000) | st.sampled_from([IN_PLACE_BYTES, 5 * PAGE_BYTES, 2 * MIB]),
            st.booleans(),
        ),
        max_size=8,
    )
)
def test_parts_in_place_and_others_make_one_file(
    file: Path, pieces: list[tuple[int, bool]]
) -> None:
    parts: list[Buffer] = []
    position = 0
    for size_bytes, in_place in pieces:
        part = memory_for(size_bytes, position if in_place else position + 1)
        part[:] = os.urandom(size_bytes)
        parts.append(part)
        position += size_bytes
    done, found = written(file, parts)
    assert not done or found == b"".join(parts)


def test_what_lies_as_in_the_file_is_written_from_where_it_is(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[memoryview]] = []
    real = os.pwritev

    def watch(descriptor: int, views: list[memoryview], at: int) -> int:
        calls.append(views)
        return real(descriptor, views, at)

    monkeypatch.setattr(os, "pwritev", watch)
    first, second = memory_for(100_000, 0), memory_for(MIB, 100_000)
    first[:], second[:] = os.urandom(100_000), os.urandom(MIB)
    done, found = written(file, [first, second])
    if done:
        assert found == bytes(first) + bytes(second)
        [views] = calls
        in_place = [view for view in views if view.obj in (first.obj, second.obj)]
        assert sum(map(len, in_place)) >= len(found) - 4 * PAGE_BYTES


def test_short_writes_are_continued(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev

    def short(descriptor: int, views: list[memoryview], at: int) -> int:
        return real(descriptor, [views[0][:8192]], at)

    monkeypatch.setattr(os, "pwritev", short)
    data = os.urandom(300_000)
    in_place = memory_for(300_000, 300_000)
    in_place[:] = data
    done, found = written(file, [data, in_place])
    assert not done or found == data * 2
