"""Groups of whole batches, cut out of the bytes of an extent as they arrive. Pure.

Only headers show where batches begin and end, and headers may be damaged. So the decoder checks
every CRC, and computes again where the offsets end.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from stratalog.batch.columns import BatchRun, Walked, walk_run
from stratalog.batch.header import CODEC_MASK, CRC_START, HEADER_BYTES, LOG_OVERHEAD_BYTES
from stratalog.scan.errors import ScanDamagedError
from stratalog.scan.fetch import FetchRange, Source

GROUP_BYTES = 16 * 1024 * 1024
GROUP_RECORDS = 256 * 1024
"""A group is decoded at once. It ends with the batch that crosses either bound. Groups of half the
size were a third slower: switches between threads cost more than the decoding."""

COMPRESSED_SHARE = 4
"""Groups of compressed batches are smaller by this factor: their decoded size is not known."""

_CODEC_AT = CRC_START + 1
"""The codec is in the second byte of the attributes, the first field that the CRC covers."""
_FIELDS = struct.Struct(">qi4xb6xi30xi")
"""The base offset, the length, the magic, the last offset delta and the number of records."""
assert _FIELDS.size == HEADER_BYTES
_LEAST_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES
_LAST_OFFSET = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchGroup:
    """Consecutive whole batches of one extent, which are decoded at once."""

    source: Source
    data: memoryview
    position: int
    """The position of the first byte in the object or, for a segment, in its log."""
    run: BatchRun
    next_offset: int
    """The offset after the last batch, by its header."""


class BatchGrouper:
    """Cuts one extent after the other into groups.

    A batch that arrives in two fetches is put together, and is a group of its own.
    """

    def __init__(self) -> None:
        self._rest: memoryview = memoryview(b"")
        self._next_offset: int | None = None
        """The next offset of the current extent. None between two extents."""

    def feed(self, fetched: FetchRange, view: memoryview) -> Iterator[BatchGroup]:
        source, position = fetched.source, fetched.position
        if self._next_offset is None:
            self._next_offset = source.extent.least_offset
        rest = len(self._rest)
        if rest:
            whole = self._completed(source, position - rest, view)
            yield from self._groups(source, whole, position - rest)
            used = len(whole) - rest
            position, view = position + used, view[used:]
        if len(view):
            yield from self._groups(source, view, position)
        if fetched.is_last:
            self._finish(source, position + len(view) - len(self._rest))

    def _completed(self, source: Source, position: int, data: memoryview) -> memoryview:
        """Return the batch that began in an earlier fetch, as far as it has arrived."""
        head = b"".join((self._rest, data[:HEADER_BYTES]))
        if len(head) < HEADER_BYTES:
            return memoryview(head)
        size_bytes = _size_bytes(source, position, head, 0)
        return memoryview(b"".join((self._rest, data[: size_bytes - len(self._rest)])))

    def _groups(self, source: Source, data: memoryview, position: int) -> Iterator[BatchGroup]:
        """Yield the groups of whole batches. An incomplete batch at the end is kept."""
        assert self._next_offset is not None
        first_offset = next_offset = self._next_offset
        start = at = records = 0
        group_bytes, group_records = _limits(data)
        while len(data) - at >= HEADER_BYTES:
            walked = walk_run(
                data[at:],
                BatchRun(next_offset, stamped=source.extent.is_stamped),
                most_bytes=group_bytes - (at - start),
                most_records=group_records - records,
            )
            if walked.size_bytes == 0:
                stepped = _step(source, data, position, at, next_offset)
                if stepped is None:
                    break
                walked = stepped
            next_offset = walked.next_offset
            at, records = at + walked.size_bytes, records + walked.records
            if at - start >= group_bytes or records >= group_records:
                yield _group(source, data[start:at], position + start, first_offset, next_offset)
                first_offset, start, records = next_offset, at, 0
        if start < at:
            yield _group(source, data[start:at], position + start, first_offset, next_offset)
        self._next_offset = next_offset
        self._rest = data[at:]

    def _finish(self, source: Source, position: int) -> None:
        """Check that the extent ended where it should."""
        if len(self._rest):
            raise _damaged(source, position, f"{len(self._rest)} bytes are not a whole batch")
        expected = source.extent.known_end
        if expected not in (None, self._next_offset):
            reason = f"the batches end before offset {self._next_offset}, not {expected}"
            raise _damaged(source, position, reason)
        self._next_offset = None


def _step(source: Source, data: memoryview, position: int, at: int, expected: int) -> Walked | None:
    """Step over a batch at which `walk_run` stops. None if the batch has not arrived completely."""
    base, length, magic, delta, count = _FIELDS.unpack_from(data, at)
    if magic != 2 or length < _LEAST_LENGTH or delta < 0:
        raise _no_batch(source, position + at, magic)
    size_bytes = LOG_OVERHEAD_BYTES + length
    if at + size_bytes > len(data):
        return None
    if not source.extent.is_stamped:
        base = expected
    elif base != expected:
        _check_gap(source, position + at, base, expected)
    if base + delta >= _LAST_OFFSET:
        raise _damaged(source, position + at, f"a batch says offset {base}")
    return Walked(size_bytes, max(count, 0), base + delta + 1)


def _limits(data: memoryview) -> tuple[int, int]:
    """Return the most bytes and records of a group.

    Groups have equal sizes, because a small group has the same fixed costs as a large one. Most
    likely all batches are compressed if the first one is.
    """
    is_compressed = len(data) >= HEADER_BYTES and data[_CODEC_AT] & CODEC_MASK
    share = COMPRESSED_SHARE if is_compressed else 1
    groups = -(-len(data) * share // GROUP_BYTES)
    return -(-len(data) // groups), GROUP_RECORDS // share


def _group(
    source: Source, data: memoryview, position: int, first_offset: int, next_offset: int
) -> BatchGroup:
    return BatchGroup(
        source=source,
        data=data,
        position=position,
        run=source.extent.run_from(first_offset),
        next_offset=next_offset,
    )


def _size_bytes(source: Source, position: int, data: bytes, at: int) -> int:
    _, length, magic, _, _ = _FIELDS.unpack_from(data, at)
    if magic != 2 or length < _LEAST_LENGTH:
        raise _no_batch(source, position, magic)
    return LOG_OVERHEAD_BYTES + int(length)


def _check_gap(source: Source, position: int, base: int, expected: int) -> None:
    """Raise unless the offsets between `expected` and `base` may be missing. They never go back."""
    if base > expected and source.extent.may_skip(expected, position):
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


def is_single(group: BatchGroup) -> bool:
    _, length, _, _, _ = _FIELDS.unpack_from(group.data)
    return bool(LOG_OVERHEAD_BYTES + length == len(group.data))


def halves(group: BatchGroup) -> Iterator[BatchGroup]:
    """Cut a group that is too large to be decoded at once. It must have several batches."""
    cuts = _cuts(group)
    assert len(cuts) > 1, "one batch is never too much"
    at, offset = cuts[(len(cuts) - 1) // 2]
    yield replace(group, data=group.data[:at], next_offset=offset)
    yield replace(
        group,
        data=group.data[at:],
        position=group.position + at,
        run=group.run._replace(base_offset=offset),
    )


def _cuts(group: BatchGroup) -> list[tuple[int, int]]:
    """Return the position at which each batch ends, and the offset after the batch."""
    cuts: list[tuple[int, int]] = []
    at, offset = 0, group.run.base_offset
    while at < len(group.data):
        base, length, _, delta, _ = _FIELDS.unpack_from(group.data, at)
        at += LOG_OVERHEAD_BYTES + length
        offset = (base if group.run.stamped else offset) + delta + 1
        cuts.append((at, offset))
    return cuts
