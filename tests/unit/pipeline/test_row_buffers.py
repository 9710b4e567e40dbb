from tests.unit.pipeline.rows import row

from stratalog.control.log.model import Coordinates
from stratalog.objects.memory import PAGE_BYTES, lies_for
from stratalog.pipeline.kinds.row_buffers import RowBuffers

BUFFER_BYTES = 100_000


def read(buffers: RowBuffers, rows: list[Coordinates]) -> list[tuple[Coordinates, memoryview]]:
    """As a reader does: each row is filled with a byte of its own."""
    found = []
    for one in rows:
        memory = buffers.memory(one)
        memory[:] = bytes([one.base_offset]) * one.byte_size
        found.append((one, memory))
    return found


def content(rows: list[Coordinates]) -> bytes:
    return b"".join(bytes([one.base_offset]) * one.byte_size for one in rows)


def joined(buffers: RowBuffers, rows: list[tuple[Coordinates, memoryview]]) -> list[memoryview]:
    """The bytes, each group of which must be of the rows that it names."""
    groups = buffers.joined(rows)
    assert [one for group in groups for one in group.rows] == [one for one, _ in rows]
    for group in groups:
        assert bytes(group.data) == content(group.rows)
    return [group.data for group in groups]


def test_rows_leave_together_and_lie_as_they_will_in_the_log() -> None:
    rows = [row(0, offset, size=30_001) for offset in range(10)]
    buffers = RowBuffers(rows, BUFFER_BYTES)
    groups = joined(buffers, read(buffers, rows))
    assert [len(group) for group in groups] == [90_003, 90_003, 90_003, 30_001]
    assert b"".join(groups) == content(rows)
    position = 0
    for group in groups[:3]:
        assert lies_for(group, position)
        assert memoryview(group.obj).nbytes < len(group) + PAGE_BYTES
        position += len(group)


def test_a_buffer_may_leave_in_parts() -> None:
    rows = [row(0, offset, size=30_000) for offset in range(3)]
    buffers = RowBuffers(rows, BUFFER_BYTES)
    found = read(buffers, rows)
    first, rest = joined(buffers, found[:1]), joined(buffers, found[1:])
    assert [len(group) for group in (*first, *rest)] == [30_000, 60_000]
    assert b"".join([*first, *rest]) == content(rows)


def test_a_row_is_read_to_the_same_place_when_it_is_read_again() -> None:
    rows = [row(0, offset, size=30_000) for offset in range(3)]
    buffers = RowBuffers(rows, BUFFER_BYTES)
    read(buffers, rows[:2])
    assert b"".join(joined(buffers, read(buffers, rows))) == content(rows)


def test_a_row_in_memory_of_somebody_else_is_a_group_of_its_own() -> None:
    rows = [row(0, offset, size=20_000) for offset in range(5)]
    buffers = RowBuffers(rows, BUFFER_BYTES)
    found = read(buffers, rows)
    for number in (2, 4):
        found[number] = (rows[number], memoryview(bytearray(found[number][1])))
    groups = joined(buffers, found)
    assert [len(group) for group in groups] == [40_000, 20_000, 20_000, 20_000]
    assert b"".join(groups) == content(rows)


def test_a_row_larger_than_a_buffer_has_one_of_its_own_size() -> None:
    rows = [row(0, 0, size=10), row(0, 1, size=3 * BUFFER_BYTES), row(0, 2, size=10)]
    buffers = RowBuffers(rows, BUFFER_BYTES)
    assert [len(group) for group in joined(buffers, read(buffers, rows))] == [
        10,
        3 * BUFFER_BYTES,
        10,
    ]
