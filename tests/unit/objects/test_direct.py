import errno
import fcntl
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.objects.direct import wants_direct, write_direct

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("direct") / "file"


def written(file: Path, parts: list[bytes]) -> tuple[bool, bytes]:
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


def test_short_writes_are_continued(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, memoryview(data)[:8192], at))
    data = os.urandom(300_000)
    done, found = written(file, [data])
    assert not done or found == data
