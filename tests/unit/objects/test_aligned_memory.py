import ctypes

import pytest

from stratalog.objects.memory import (
    IN_PLACE_BYTES,
    PAGE_BYTES,
    grow,
    lies_for,
    memory_for,
    new_memory,
)


def address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


@pytest.mark.parametrize("position", [0, 1, 4095, 4096, 123_457])
def test_memory_lies_as_its_bytes_will_in_the_file(position: int) -> None:
    view = memory_for(IN_PLACE_BYTES, position)
    assert len(view) == IN_PLACE_BYTES
    assert not view.readonly
    assert (address(view) - position) % PAGE_BYTES == 0
    assert lies_for(view, position)
    assert lies_for(view, position + 3 * PAGE_BYTES)
    assert not lies_for(view, position + 1)


def test_small_memory_is_no_larger_than_asked_for() -> None:
    view = memory_for(IN_PLACE_BYTES - 1, 5)
    assert len(view) == memoryview(view.obj).nbytes == IN_PLACE_BYTES - 1


def test_bytes_that_cannot_be_written_to_are_never_taken_in_place() -> None:
    assert not any(lies_for(memoryview(bytes(100)), position) for position in range(PAGE_BYTES))


def test_new_memory_can_be_filled_and_cut() -> None:
    memory = new_memory(10)
    memory[:] = b"0123456789"
    del memory[4:]
    assert memory == b"0123"
    assert new_memory(0) == b""


def test_memory_grows_behind_the_bytes_that_it_has() -> None:
    memory = bytearray(b"abc")
    for size_bytes in (4, 10_000, 3_000_000):
        grow(memory, size_bytes)
        assert len(memory) == size_bytes
        assert memory[:3] == b"abc"
    with memoryview(memory), pytest.raises(BufferError):
        grow(memory, 4_000_000)
