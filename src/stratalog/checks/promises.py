"""The promises of docs/architecture.md as predicates.

Each predicate is pure: it takes values of a snapshot and returns the problems that they show, or
none if the promise is kept. Tests and simulations assert the predicates, and `fsck` runs them
against a real cluster. The promises about segments are in `segment_promises.py`.
"""

from collections.abc import Iterable, Iterator, Sequence

from stratalog.batch.errors import BatchDamagedError
from stratalog.batch.frames import check_crc, iter_batches
from stratalog.batch.header import BatchHeader, BytesLike
from stratalog.checks.report import Problem, Promise, Severity
from stratalog.checks.row_sequence import RowSequence, claimed_twice
from stratalog.control.brokers.model import BrokerInfo
from stratalog.control.log.boundaries import backward_moves, boundary_breaches
from stratalog.control.log.model import Coordinates, PartitionState
from stratalog.control.objects.model import StoredObjectRow
from stratalog.ids import Offset
from stratalog.objects.store import ObjectInfo
from stratalog.pieces import Piece


def acknowledged_is_readable(
    base_offset: Offset,
    last_offset: Offset,
    state: PartitionState,
    pieces: Sequence[Piece],
) -> list[Problem]:
    """Promise 1: an acknowledged batch is in the pieces, unless it is below `log_start`.

    The pieces are in offset order.
    """
    offset = max(base_offset, state.log_start)
    for piece in pieces:
        if piece.base_offset <= offset < piece.end_offset:
            offset = piece.end_offset
    if offset > last_offset:
        return []
    text = f"offset {offset} was acknowledged and is in no segment and no row"
    return [Problem(promise=Promise.READABLE, text=text)]


def offsets_have_one_value(rows: Sequence[Coordinates]) -> list[Problem]:
    """Promise 2: no two rows claim an offset. The rows are in offset order."""
    problems: list[Problem] = []
    furthest: Coordinates | None = None
    for row in rows:
        if furthest is not None and row.base_offset <= furthest.last_offset:
            problems.append(claimed_twice(furthest, row))
        if furthest is None or row.last_offset > furthest.last_offset:
            furthest = row
    return problems


def rows_are_dense(state: PartitionState, rows: Iterable[Coordinates]) -> list[Problem]:
    """Promises 2 and 3: the rows of one snapshot cover each offset of the block range once."""
    sequence = RowSequence(state)
    for row in rows:
        sequence.step(row)
    return sequence.finish(state)


def boundaries_hold(state: PartitionState) -> list[Problem]:
    """Promise 4: the relations between a partition's offsets."""
    return [Problem(promise=Promise.BOUNDARIES, text=text) for text in boundary_breaches(state)]


def boundaries_moved_forward(before: PartitionState, after: PartitionState) -> list[Problem]:
    """Promise 4: between two snapshots of a partition, no boundary moves back."""
    return [
        Problem(promise=Promise.BOUNDARIES, text=text) for text in backward_moves(before, after)
    ]


def row_is_backed(
    byte_end: int, object_row: StoredObjectRow | None, info: ObjectInfo | None
) -> list[Problem]:
    """Promise 5: an object that a row refers to has the bytes up to `byte_end`, and stays."""
    if object_row is None:
        text = "a row refers to it, but the control plane has no such object"
    elif object_row.marked_ms is not None:
        text = "a row refers to it, but it is marked for deletion"
    elif info is None:
        text = "a row refers to it, but it is not in the store"
    elif byte_end > info.size_bytes:
        text = f"a row needs {byte_end} bytes of it, but it has {info.size_bytes}"
    else:
        return []
    return [Problem(promise=Promise.OBJECTS, text=text)]


def object_is_whole(object_row: StoredObjectRow, info: ObjectInfo | None) -> list[Problem]:
    """Promise 5: an object that was committed, and not marked since, is in the store."""
    if object_row.marked_ms is not None:
        return []
    if info is None:
        text = "it was committed, but it is not in the store"
    elif info.size_bytes < object_row.size_bytes:
        text = f"it was committed with {object_row.size_bytes} bytes and has {info.size_bytes}"
    else:
        return []
    return [Problem(promise=Promise.OBJECTS, text=text)]


def object_is_accounted_for(
    info: ObjectInfo, object_row: StoredObjectRow | None, *, created_ms: int, old_since_ms: int
) -> list[Problem]:
    """Promise 5: a stored object has a row, or is young by its name or by the store's time."""
    if object_row is not None or max(created_ms, info.modified_ms) > old_since_ms:
        return []
    return [waste(info, "commit")]


def waste(info: ObjectInfo, owner: str) -> Problem:
    """The problem of a stored object that no `owner` refers to."""
    text = (
        f"its {info.size_bytes} bytes belong to no {owner}; the sweeper takes such objects if a"
        " writer of this cluster made them. If this one stays, the janitor's log says why, or"
        " another cluster made it"
    )
    return Problem(promise=Promise.OBJECTS, text=text, severity=Severity.WASTE)


def holders_are_distinct(brokers: Sequence[BrokerInfo]) -> list[Problem]:
    """Promise 6, as far as a snapshot shows it: one id, one process, one address."""
    live = [broker for broker in brokers if broker.alive]
    shared = [
        *_shared("id", [broker.broker_id for broker in brokers]),
        *_shared("incarnation", [broker.incarnation for broker in brokers]),
        *_shared("address", [f"{broker.host}:{broker.port}" for broker in live]),
    ]
    return [Problem(promise=Promise.HOLDERS, text=text) for text in shared]


def _shared(name: str, values: Sequence[object]) -> Iterator[str]:
    for value in sorted({str(value) for value in values if values.count(value) > 1}):
        yield f"several brokers have {name} {value}"


def batches_fill_row(row: Coordinates, data: BytesLike) -> list[Problem]:
    """Promises 2 and 7: the row's bytes are whole batches that make exactly its offsets."""
    expected = row.base_offset
    try:
        for position, header in iter_batches(data):
            batch = memoryview(data)[position : position + header.size_bytes]
            problems = batch_continues_row(row, expected, header, batch)
            if problems:
                return problems
            expected = Offset(expected + header.last_offset_delta + 1)
    except BatchDamagedError as error:
        return [Problem(promise=Promise.CHECKSUMS, text=f"row {row.base_offset}: {error}")]
    return batches_end_with_row(row, expected)


def batch_continues_row(
    row: Coordinates, expected: Offset, header: BatchHeader, batch: BytesLike
) -> list[Problem]:
    """Check that this batch, whose first offset must be `expected`, is as the row says."""
    where = f"row {row.base_offset}, batch at offset {expected}"
    try:
        check_crc(batch, 0, header)
    except BatchDamagedError as error:
        return [Problem(promise=Promise.CHECKSUMS, text=f"{where}: {error}")]
    return [
        Problem(promise=Promise.ONE_VALUE, text=f"{where}: {text}")
        for text in _batch_breaches(row, expected, header)
    ]


def _batch_breaches(row: Coordinates, expected: Offset, header: BatchHeader) -> Iterator[str]:
    # No batch enters without records: one that has none stands for a lost range.
    if header.records_count not in (header.last_offset_delta + 1, 0):
        yield f"{header.records_count} records for {header.last_offset_delta + 1} offsets"
    if row.stamped and header.base_offset != expected:
        yield f"the bytes say offset {header.base_offset}"
    if row.stamped and header.leader_epoch != row.leader_epoch:
        yield f"the bytes say epoch {header.leader_epoch}, the row {row.leader_epoch}"


def batches_end_with_row(row: Coordinates, expected: Offset) -> list[Problem]:
    """Check that the batches end where the row ends."""
    if expected == row.last_offset + 1:
        return []
    text = f"row {row.base_offset} ends at {row.last_offset}, its batches at {expected - 1}"
    return [Problem(promise=Promise.ONE_VALUE, text=text)]
