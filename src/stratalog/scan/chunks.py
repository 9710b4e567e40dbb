"""From the bytes of a piece, as they arrive, to runs of whole batches. Pure.

Batches are told apart by their headers alone. What the headers say is believed only so far: the
decoder checks every CRC, and finds out again where the offsets end.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from stratalog.batch.columns import BatchRun, Walked, walk_run
from stratalog.batch.header import CODEC_MASK, CRC_START, HEADER_BYTES, LOG_OVERHEAD_BYTES
from stratalog.scan.errors import ScanDamagedError
from stratalog.scan.fetch import Part, Source
from stratalog.scan.model import RowPiece, SegmentPiece
from stratalog.segment.log_batches import is_dense

CHUNK_BYTES = 16 * 1024 * 1024
CHUNK_RECORDS = 256 * 1024
"""What is decoded at once ends with the batch that crosses either. Half of it was a third slower:
changes between threads cost more than the decoding."""

COMPRESSED_SHARE = 4
"""Of compressed batches, so much less: nobody knows how large they become."""

_CODEC_AT = CRC_START + 1
"""In the second byte of the attributes, the first field that the CRC is of."""
_FIELDS = struct.Struct(">qi4xb6xi30xi")
"""Base offset, length, magic, last offset delta, number of records."""
assert _FIELDS.size == HEADER_BYTES
_LEAST_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES
_LAST_OFFSET = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    source: Source
    data: memoryview
    position: int
    """Of the object or the log, at which the bytes begin."""
    run: BatchRun
    next_offset: int
    """After the last batch, by its header."""


class Frames:
    """Cuts one piece after the other. A batch that arrives in two parts is put together, and is a
    chunk of its own."""

    def __init__(self) -> None:
        self._rest: memoryview = memoryview(b"")
        self._next_offset: int | None = None
        """Of the piece that is under way."""

    def feed(self, part: Part, view: memoryview) -> Iterator[Chunk]:
        source, position = part.source, part.position
        if self._next_offset is None:
            self._next_offset = _first_offset(source)
        rest = len(self._rest)
        if rest:
            whole = self._completed(source, position - rest, view)
            yield from self._chunks(source, whole, position - rest)
            used = len(whole) - rest
            position, view = position + used, view[used:]
        if len(view):
            yield from self._chunks(source, view, position)
        if part.is_last:
            self._finish(source, position + len(view) - len(self._rest))

    def _completed(self, source: Source, position: int, data: memoryview) -> memoryview:
        """The batch that began in an earlier part, as far as it is here."""
        head = b"".join((self._rest, data[:HEADER_BYTES]))
        if len(head) < HEADER_BYTES:
            return memoryview(head)
        size_bytes = _size_bytes(source, position, head, 0)
        return memoryview(b"".join((self._rest, data[: size_bytes - len(self._rest)])))

    def _chunks(self, source: Source, data: memoryview, position: int) -> Iterator[Chunk]:
        """What is left over is kept."""
        assert self._next_offset is not None
        first_offset = next_offset = self._next_offset
        start = at = records = 0
        chunk_bytes, chunk_records = _limits(data)
        while len(data) - at >= HEADER_BYTES:
            walked = walk_run(
                data[at:],
                BatchRun(next_offset, stamped=_is_stamped(source)),
                most_bytes=chunk_bytes - (at - start),
                most_records=chunk_records - records,
            )
            if walked.size_bytes == 0:
                stepped = _step(source, data, position, at, next_offset)
                if stepped is None:
                    break
                walked = stepped
            next_offset = walked.next_offset
            at, records = at + walked.size_bytes, records + walked.records
            if at - start >= chunk_bytes or records >= chunk_records:
                yield _chunk(source, data[start:at], position + start, first_offset, next_offset)
                first_offset, start, records = next_offset, at, 0
        if start < at:
            yield _chunk(source, data[start:at], position + start, first_offset, next_offset)
        self._next_offset = next_offset
        self._rest = data[at:]

    def _finish(self, source: Source, position: int) -> None:
        """Check that the piece ended where it should."""
        if len(self._rest):
            raise _damaged(source, position, f"{len(self._rest)} bytes are not a whole batch")
        expected = _end_offset(source.piece)
        if expected not in (None, self._next_offset):
            reason = f"the batches end before offset {self._next_offset}, not {expected}"
            raise _damaged(source, position, reason)
        self._next_offset = None


def _step(source: Source, data: memoryview, position: int, at: int, expected: int) -> Walked | None:
    """Over a batch that a walk stops at. None if it is not all here yet."""
    base, length, magic, delta, count = _FIELDS.unpack_from(data, at)
    if magic != 2 or length < _LEAST_LENGTH or delta < 0:
        raise _no_batch(source, position + at, magic)
    size_bytes = LOG_OVERHEAD_BYTES + length
    if at + size_bytes > len(data):
        return None
    if not _is_stamped(source):
        base = expected
    elif base != expected:
        _check_gap(source, position + at, base, expected)
    if base + delta >= _LAST_OFFSET:
        raise _damaged(source, position + at, f"a batch says offset {base}")
    return Walked(size_bytes, max(count, 0), base + delta + 1)


def _limits(data: memoryview) -> tuple[int, int]:
    """Of a chunk's bytes and records. Chunks have equal sizes: a small one costs as much beside its
    decoding as a large one. Most likely all batches are compressed if the first one is."""
    is_compressed = len(data) >= HEADER_BYTES and data[_CODEC_AT] & CODEC_MASK
    share = COMPRESSED_SHARE if is_compressed else 1
    chunks = -(-len(data) * share // CHUNK_BYTES)
    return -(-len(data) // chunks), CHUNK_RECORDS // share


def _is_stamped(source: Source) -> bool:
    piece = source.piece
    return isinstance(piece, SegmentPiece) or piece.run.stamped


def _chunk(
    source: Source, data: memoryview, position: int, first_offset: int, next_offset: int
) -> Chunk:
    piece = source.piece
    known = piece.run if isinstance(piece, RowPiece) else BatchRun(first_offset)
    return Chunk(
        source=source,
        data=data,
        position=position,
        run=known._replace(base_offset=first_offset),
        next_offset=next_offset,
    )


def _size_bytes(source: Source, position: int, data: bytes, at: int) -> int:
    _, length, magic, _, _ = _FIELDS.unpack_from(data, at)
    if magic != 2 or length < _LEAST_LENGTH:
        raise _no_batch(source, position, magic)
    return LOG_OVERHEAD_BYTES + int(length)


def _first_offset(source: Source) -> int:
    """The least that the first batch may have."""
    piece = source.piece
    return piece.run.base_offset if isinstance(piece, RowPiece) else piece.segment.base_offset


def _end_offset(piece: RowPiece | SegmentPiece) -> int | None:
    """Where the batches must end; None, if nobody knows before they are read."""
    if isinstance(piece, RowPiece):
        return piece.last_offset + 1
    segment = piece.segment
    is_to_end = piece.end == segment.size_bytes and piece.end_offset in (None, segment.end_offset)
    return segment.end_offset if is_to_end and is_dense(segment) else None


def _check_gap(source: Source, position: int, base: int, expected: int) -> None:
    """Offsets may be left out in segments of Kafka's own, and before the first batch of a piece
    that begins inside a segment. They never go back."""
    piece = source.piece
    if isinstance(piece, SegmentPiece) and base > expected:
        begins = expected == piece.segment.base_offset and position > 0
        if begins or not is_dense(piece.segment):
            return
    raise _damaged(source, position, f"a batch says offset {base}, not {expected}")


def _no_batch(source: Source, position: int, magic: int) -> ScanDamagedError:
    if magic in (0, 1):
        return _damaged(source, position, f"records of message format {magic}, or no records")
    return _damaged(source, position, "no record batch begins here")


def _damaged(source: Source, position: int, reason: str) -> ScanDamagedError:
    stretch = source.stretch
    return ScanDamagedError(
        f"object {source.object_key}, byte {position}, of {stretch.topic}-{stretch.partition}:"
        f" {reason}; `stratalog fsck` tells more"
    )


def halves(chunk: Chunk) -> Iterator[Chunk]:
    """The chunk in two, if it has several batches, for those to whom it is too much."""
    cuts = _cuts(chunk)
    assert len(cuts) > 1, "one batch is never too much"
    at, offset = cuts[(len(cuts) - 1) // 2]
    yield replace(chunk, data=chunk.data[:at], next_offset=offset)
    yield replace(
        chunk,
        data=chunk.data[at:],
        position=chunk.position + at,
        run=chunk.run._replace(base_offset=offset),
    )


def _cuts(chunk: Chunk) -> list[tuple[int, int]]:
    """Where each batch ends, and the offset after it."""
    cuts: list[tuple[int, int]] = []
    at, offset = 0, chunk.run.base_offset
    while at < len(chunk.data):
        base, length, _, delta, _ = _FIELDS.unpack_from(chunk.data, at)
        at += LOG_OVERHEAD_BYTES + length
        offset = (base if chunk.run.stamped else offset) + delta + 1
        cuts.append((at, offset))
    return cuts
