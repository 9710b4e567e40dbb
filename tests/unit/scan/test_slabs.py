"""Memory for fetched bytes: used again, and never while somebody still looks at it."""

import ctypes

import pyarrow as pa
import pytest

from stratalog.objects.memory import PAGE_BYTES
from stratalog.scan.fetching import Fetched
from stratalog.scan.slabs import Slabs

SLAB_BYTES = 64 * 1024


@pytest.fixture
def slabs() -> Slabs:
    return Slabs(slab_bytes=SLAB_BYTES, most_slabs=2)


def address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def test_memory_that_nobody_looks_at_is_used_again(slabs: Slabs) -> None:
    first = address(slabs.take(SLAB_BYTES, 0))
    assert [address(slabs.take(SLAB_BYTES, 0)) for _ in range(3)] == [first] * 3


def test_memory_is_not_used_again_while_a_view_or_a_buffer_of_it_is_left(slabs: Slabs) -> None:
    view = slabs.take(SLAB_BYTES, 0)
    view[:5] = b"first"
    held = pa.py_buffer(view[:5])
    del view
    slabs.take(SLAB_BYTES, 0)[:5] = b"other"
    assert held.to_pybytes() == b"first"


def test_more_than_may_be_kept_is_given_all_the_same_and_apart(slabs: Slabs) -> None:
    views = [slabs.take(SLAB_BYTES, 0) for _ in range(4)]
    for number, view in enumerate(views):
        view[:] = bytes([number]) * SLAB_BYTES
    assert [view[0] for view in views] == [view[-1] for view in views] == [0, 1, 2, 3]


@pytest.mark.parametrize("size_bytes", [1, SLAB_BYTES, SLAB_BYTES + 1])
def test_memory_has_the_size_that_was_asked_for(slabs: Slabs, size_bytes: int) -> None:
    assert len(slabs.take(size_bytes, 4095)) == size_bytes


@pytest.mark.parametrize("position", [0, 1, 4095, 4096, 123_457])
@pytest.mark.parametrize("room_bytes", [0, 1, 5000])
@pytest.mark.parametrize("size_bytes", [SLAB_BYTES // 2, SLAB_BYTES])
def test_memory_lies_in_its_page_as_the_bytes_do_in_theirs(
    slabs: Slabs, size_bytes: int, position: int, room_bytes: int
) -> None:
    memory = slabs.take(size_bytes, position, room_bytes=room_bytes)
    assert len(memory) == room_bytes + size_bytes
    assert (address(memory[room_bytes:]) - position) % PAGE_BYTES == 0


def test_bytes_are_put_before_others_as_long_as_there_is_room() -> None:
    bytes_here = Fetched(memoryview(bytearray(b"....here")), start=4)
    assert bytes_here.behind(memoryview(b"and ")) == memoryview(b"and here")
    assert bytes_here.behind(memoryview(b"out ")[:3]) == memoryview(b"outhere")
    assert bytes_here.behind(memoryview(b"where")) is None
    assert bytes_here.data == memoryview(b"here")
