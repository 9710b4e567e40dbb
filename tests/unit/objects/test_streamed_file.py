import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from stratalog.objects import direct_write
from stratalog.objects.streamed_file import StreamedFile

RUN_BYTES = 1024 * 1024


def runs_of(data: bytes) -> list[tuple[int, list[memoryview]]]:
    view = memoryview(data)
    starts = range(0, len(data), RUN_BYTES)
    return [
        (start, [view[start : start + 1000], view[start + 1000 : start + RUN_BYTES]])
        for start in starts
    ]


def finished(file: StreamedFile, size_bytes: int) -> bytes:
    """Return the bytes of the file. None of the room that was reserved for it may be left."""
    status = os.fstat(file.finish())
    file.close()
    assert file.size_bytes == status.st_size == size_bytes
    assert status.st_blocks * 512 <= size_bytes + 64 * 1024
    return file.path.read_bytes()


@pytest.mark.parametrize("size_bytes", [0, 1, 300_000, 8 * RUN_BYTES, 9 * RUN_BYTES + 5])
def test_runs_may_be_written_side_by_side_and_in_any_order(tmp_path: Path, size_bytes: int) -> None:
    data = os.urandom(size_bytes)
    file = StreamedFile(tmp_path / "file")
    runs = runs_of(data)
    Random(size_bytes).shuffle(runs)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda run: file.write(run[1], run[0]), runs))
    assert finished(file, size_bytes) == data


def test_the_file_is_the_same_where_no_room_can_be_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_write, "_fallocate", None)
    data = os.urandom(5 * RUN_BYTES + 5)
    file = StreamedFile(tmp_path / "file")
    for position, run in reversed(runs_of(data)):
        file.write(run, position)
    assert finished(file, len(data)) == data


def test_the_file_is_the_same_where_writes_pass_through_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_write, "_O_DIRECT", 0)
    data = os.urandom(5 * RUN_BYTES + 5)
    file = StreamedFile(tmp_path / "file")
    for position, run in reversed(runs_of(data)):
        file.write(run, position)
    assert finished(file, len(data)) == data


def test_reserving_more_than_there_is_does_nothing(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    direct_write.reserve(descriptor, 1 << 60)
    assert os.fstat(descriptor).st_size == 0
    os.close(descriptor)


def test_nothing_is_left_of_an_abandoned_file(tmp_path: Path) -> None:
    file = StreamedFile(tmp_path / "file")
    assert os.listdir(tmp_path) == []
    file.abandon()
    for position, run in runs_of(bytes(3 * RUN_BYTES)):
        file.write(run, position)
    file.abandon()
    assert os.listdir(tmp_path) == []
