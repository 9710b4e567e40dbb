"""The audit of a whole segment: its log is compared with its row, its indexes with its log."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace

from stratalog.batch.errors import BatchDamagedError
from stratalog.batch.frames import iter_batches
from stratalog.batch.header import BatchHeader
from stratalog.checks.index_audit import IndexAudit
from stratalog.checks.log_audit import LogAudit
from stratalog.checks.record_check import record_fault
from stratalog.checks.remote_tier import RemoteTier
from stratalog.checks.report import Problem, Promise
from stratalog.checks.segment_promises import name_of
from stratalog.control.segments.model import Segment
from stratalog.errors import DamagedError
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.segment.batch_framing import BatchFraming
from stratalog.segment.errors import KeyMissingError, LogDamagedError
from stratalog.segment.index_object import read_index
from stratalog.segment.keys import MANIFEST_SUFFIX
from stratalog.segment.log_batches import is_dense
from stratalog.segment.manifest import IndexRange, parse_manifest
from stratalog.segment.model import IndexKind
from stratalog.segment.open_segment import PLAIN_CHUNK_BYTES, OpenSegment, open_segment
from stratalog.segment.producer_state import PartitionTail
from stratalog.segment.thread_offload import offload

_WINDOW_BYTES = 4 * 1024 * 1024
"""The bytes of the object that are requested at once."""

_MAX_UNDECODABLE = 10
"""The most undecodable batches that are reported for one segment: more would not help."""


@dataclass(slots=True)
class Audited:
    log: list[Problem] = field(default_factory=list)
    """Damage of the records, or of the manifest that leads to them. It cannot be repaired."""
    records: list[Problem] = field(default_factory=list)
    """Batches that cannot be decoded. Indexes can be rebuilt nevertheless: they need headers."""
    indexes: list[Problem] = field(default_factory=list)
    """Damage of parts that can be rebuilt from the records."""
    good: dict[IndexKind, bytes] = field(default_factory=dict)
    """The indexes without problems."""
    batches: int = 0
    empty: list[tuple[int, int]] = field(default_factory=list)
    """First and last offset of each batch without records."""

    @property
    def problems(self) -> list[Problem]:
        return [*self.log, *self.records, *self.indexes]


async def audit_segment(
    segment: Segment, tier: RemoteTier, before: PartitionTail | None
) -> Audited:
    """Read all of a finished segment. Damage is returned as problems, never raised.

    `before` is the state of producers at the segment's start, if it is known.
    """
    audited = Audited()
    try:
        opened = await open_whole(segment, tier)
    except (KeyMissingError, DamagedError) as error:
        audited.log.append(_problem(segment, Promise.READABLE, str(error)))
        return audited
    audited.indexes += await _audit_manifest(opened)
    found = await _read_indexes(opened, audited)
    # Other writers may treat a transaction that began before the segment in another way.
    indexes = IndexAudit(segment, found, before if is_dense(segment) else None)
    await _audit_log(opened, indexes, audited)
    audited.indexes += indexes.problems
    audited.good = {kind: data for kind, data in found.items() if kind not in indexes.wrong}
    return audited


async def open_whole(segment: Segment, tier: RemoteTier) -> OpenSegment:
    """Open a segment, to read it from its first byte to its last."""
    store = tier.stores.of(segment.store_url)
    assert segment.uploaded is not None, f"segment {segment.segment_id} is not finished"
    # Unsealing a data key takes milliseconds, and a long list of chunks takes some to parse.
    return await offload(
        _WINDOW_BYTES, open_segment, segment, store, tier.keys, plain_chunk_bytes=PLAIN_CHUNK_BYTES
    )


async def whole_batches(opened: OpenSegment) -> AsyncIterator[memoryview]:
    """Yield the log as buffers of whole batches, which the caller may change."""
    framing = BatchFraming()
    try:
        for run in _runs(opened):
            ranges = [opened.chunks.stored_range(chunk) for chunk in run]
            buffers = await opened.store.get_ranges(opened.log_key, ranges)
            for chunk, stored in zip(run, buffers, strict=True):
                data = await offload(len(stored), opened.decode, chunk, stored)
                for buffer in framing.push(data):
                    yield buffer
        framing.finish()
    except BatchDamagedError as error:
        where = f"object {opened.log_key}, byte {error.position} of the log"
        raise LogDamagedError(f"{where}: {error.reason}") from error


def _runs(opened: OpenSegment) -> Iterator[list[int]]:
    """Yield consecutive chunks that are requested together."""
    run: list[int] = []
    start = 0
    for chunk in range(opened.chunks.count):
        stored = opened.chunks.stored_range(chunk)
        if run and stored.end - start > _WINDOW_BYTES:
            yield run
            run = []
        if not run:
            start = stored.start
        run.append(chunk)
    if run:
        yield run


async def _audit_log(opened: OpenSegment, indexes: IndexAudit, audited: Audited) -> None:
    audit = LogAudit(opened.segment)
    try:
        async for position, header, batch in _positioned(opened):
            whole = audit.step(position, header, batch)
            fault = await record_fault(header, batch) if whole else None
            if fault is not None and len(audited.records) < _MAX_UNDECODABLE:
                text = f"the batch of offset {header.base_offset}: {fault}"
                audited.records.append(_problem(opened.segment, Promise.READABLE, text))
            indexes.step(position, header, batch if whole else None)
            audited.batches += 1
            if header.records_count == 0:
                audited.empty.append((header.base_offset, header.last_offset))
    except ObjectNotFoundError:
        text = f"its object {opened.log_key} is not in the store"
        audited.log.append(_problem(opened.segment, Promise.READABLE, text))
    except DamagedError as error:
        audited.log.append(_problem(opened.segment, Promise.CHECKSUMS, str(error)))
    else:
        audit.finish()
        indexes.finish()
    audited.log += audit.problems


async def _positioned(opened: OpenSegment) -> AsyncIterator[tuple[int, BatchHeader, memoryview]]:
    """Yield each batch with its position in the log."""
    position = 0
    async for buffer in whole_batches(opened):
        try:
            for at, header in iter_batches(buffer):
                yield position + at, header, buffer[at : at + header.size_bytes]
        except BatchDamagedError as error:
            where = f"object {opened.log_key}, byte {position + error.position} of the log"
            raise LogDamagedError(f"{where}: {error.reason}") from error
        position += len(buffer)


async def _audit_manifest(opened: OpenSegment) -> list[Problem]:
    """Check that the manifest in the store equals the one in the row."""
    segment = opened.segment
    assert segment.uploaded is not None
    key = segment.key_base + MANIFEST_SUFFIX
    try:
        data = bytes((await opened.store.get(key)).data)
        stored = parse_manifest(data, f"object {key}")
    except ObjectNotFoundError:
        return [_problem(segment, Promise.OBJECTS, f"its object {key} is not in the store")]
    except DamagedError as error:
        return [_problem(segment, Promise.OBJECTS, str(error))]
    same = replace(stored, segment=None) == replace(opened.manifest, segment=None)
    if is_dense(segment):
        same = data == segment.uploaded.manifest.encode()
    if same:
        return []
    return [_problem(segment, Promise.OBJECTS, f"its object {key} and its row do not agree")]


async def _read_indexes(opened: OpenSegment, audited: Audited) -> dict[IndexKind, bytes]:
    """Return the indexes that can be read."""
    found: dict[IndexKind, bytes] = {}
    try:
        data = memoryview((await opened.store.get(opened.indexes_key)).data)
    except ObjectNotFoundError:
        text = f"its object {opened.indexes_key} is not in the store"
        audited.indexes.append(_problem(opened.segment, Promise.READABLE, text))
        return found
    expected_bytes = opened.manifest.indexes_bytes
    if len(data) != expected_bytes:
        text = f"its object {opened.indexes_key} has {len(data)} bytes, not {expected_bytes}"
        audited.indexes.append(_problem(opened.segment, Promise.OBJECTS, text))
    for kind in IndexKind:
        index_range = opened.manifest.indexes.get(kind, IndexRange(0, 0))
        stored = data[index_range.position : index_range.end]
        try:
            found[kind] = read_index(
                opened.manifest, kind, stored, opened.cipher, f"object {opened.indexes_key}"
            )
        except DamagedError as error:
            audited.indexes.append(_problem(opened.segment, Promise.READABLE, str(error)))
    return found


def _problem(segment: Segment, promise: Promise, text: str) -> Problem:
    return Problem(promise=promise, text=f"{name_of(segment)}: {text}")
