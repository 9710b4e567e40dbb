from tests.unit.pipeline.rows import row

from stratalog.control.log.model import Coordinates
from stratalog.objects.memory import PAGE_BYTES, lies_for
from stratalog.pipeline.kinds.row_buffers import Slabs

SLAB_BYTES = 100_000


def read(slabs: Slabs, rows: list[Coordinates]) -> list[tuple[Coordinates, memoryview]]:
    """As a reader does: each row is filled with a byte of its own."""
    found = []
    for one in rows:
        memory = slabs.memory(one)
        memory[:] = bytes([one.base_offset]) * one.byte_size
        found.append((one, memory))
    return found


def content(rows: list[Coordinates]) -> bytes:
    return b"".join(bytes([one.base_offset]) * one.byte_size for one in rows)


def joined(slabs: Slabs, rows: list[tuple[Coordinates, memoryview]]) -> list[memoryview]:
    """The bytes, each piece of which must be of the rows that it names."""
    pieces = slabs.joined(rows)
    assert [one for piece in pieces for one in piece.rows] == [one for one, _ in rows]
    for piece in pieces:
        assert bytes(piece.data) == content(piece.rows)
    return [piece.data for piece in pieces]


def test_rows_leave_together_and_lie_as_they_will_in_the_log() -> None:
    rows = [row(0, offset, size=30_001) for offset in range(10)]
    slabs = Slabs(rows, SLAB_BYTES)
    pieces = joined(slabs, read(slabs, rows))
    assert [len(piece) for piece in pieces] == [90_003, 90_003, 90_003, 30_001]
    assert b"".join(pieces) == content(rows)
    position = 0
    for piece in pieces[:3]:
        assert lies_for(piece, position)
        assert memoryview(piece.obj).nbytes < len(piece) + PAGE_BYTES
        position += len(piece)


def test_a_slab_may_leave_in_parts() -> None:
    rows = [row(0, offset, size=30_000) for offset in range(3)]
    slabs = Slabs(rows, SLAB_BYTES)
    found = read(slabs, rows)
    first, rest = joined(slabs, found[:1]), joined(slabs, found[1:])
    assert [len(piece) for piece in (*first, *rest)] == [30_000, 60_000]
    assert b"".join([*first, *rest]) == content(rows)


def test_a_row_is_read_to_the_same_place_when_it_is_read_again() -> None:
    rows = [row(0, offset, size=30_000) for offset in range(3)]
    slabs = Slabs(rows, SLAB_BYTES)
    read(slabs, rows[:2])
    assert b"".join(joined(slabs, read(slabs, rows))) == content(rows)


def test_a_row_in_memory_of_somebody_else_is_a_piece_of_its_own() -> None:
    rows = [row(0, offset, size=20_000) for offset in range(5)]
    slabs = Slabs(rows, SLAB_BYTES)
    found = read(slabs, rows)
    for number in (2, 4):
        found[number] = (rows[number], memoryview(bytearray(found[number][1])))
    pieces = joined(slabs, found)
    assert [len(piece) for piece in pieces] == [40_000, 20_000, 20_000, 20_000]
    assert b"".join(pieces) == content(rows)


def test_a_row_larger_than_a_slab_has_one_of_its_own_size() -> None:
    rows = [row(0, 0, size=10), row(0, 1, size=3 * SLAB_BYTES), row(0, 2, size=10)]
    slabs = Slabs(rows, SLAB_BYTES)
    assert [len(piece) for piece in joined(slabs, read(slabs, rows))] == [10, 3 * SLAB_BYTES, 10]
