"""Blocks that no footer tells of, found again in split files and segments by their batches.

A split or a merge may have taken the last blocks of a writer, whose bytes are then in the store
twice. The copy tells the offsets. Batches are compared by all header fields that no copy changes;
so two batches that are taken for each other have the same records.
"""

from collections import defaultdict, deque
from collections.abc import Hashable
from dataclasses import asdict, replace
from typing import NamedTuple

from stratalog.batch.frames import iter_batches
from stratalog.batch.header import BatchHeader, TimestampType
from stratalog.block.footer import EarlierAnswer
from stratalog.checks.remote_tier import RemoteTier
from stratalog.checks.segment_audit import open_whole, whole_batches
from stratalog.control.segments.model import Segment, SegmentState
from stratalog.ids import NO_OFFSET, ObjectId, Offset
from stratalog.objects.store import ObjectStore, Range
from stratalog.recovery.block_offsets import told_offsets
from stratalog.recovery.evidence import BlockPart, PartitionEvidence
from stratalog.recovery.findings import SplitRange
from stratalog.recovery.headers import HeaderReader
from stratalog.recovery.survey import FoundSegmentObjects


class _Identity(NamedTuple):
    length: int
    last_offset_delta: int
    base_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int
    crc: int
    """0 of batches with the time of their append: stamping changes it."""


_Places = dict[_Identity, deque[int]]


async def matched_answers(
    evidence: PartitionEvidence, store: ObjectStore, tier: RemoteTier, headers: HeaderReader
) -> PartitionEvidence:
    """Add the answers of blocks whose batches are in split files or segments."""
    told = told_offsets(evidence)
    if not told.untold:
        return evidence
    # A writer's blocks lie behind its blocks with proven offsets, and behind all that is known.
    lower = min(told.last_told.get(writer, 0) for writer in told.untold)
    lower = max(lower, evidence.high_watermark)
    places = await _places(evidence, store, tier, lower)
    if not places:
        return evidence
    taken = {stretch.base for stretch in told.stretches}
    answers = dict(evidence.answers)
    assumed: set[tuple[ObjectId, int]] = set()
    for writer, parts in told.untold.items():
        position = max(told.last_told.get(writer, 0), evidence.high_watermark)
        for part in sorted(parts, key=lambda each: each.sequence):
            offsets = _match(part, headers, places, taken, position)
            found = [offset for offset in offsets if offset != NO_OFFSET]
            if found:
                assumed |= _continue(part, offsets)
                key: tuple[Hashable, int] = (writer, part.sequence)
                answers[key] = EarlierAnswer(sequence=part.sequence, is_run=False, offsets=offsets)
                position = found[-1]
    return replace(evidence, answers=answers, assumed=frozenset(assumed))


def _continue(part: BlockPart, offsets: list[Offset]) -> set[tuple[ObjectId, int]]:
    """Give offsets to the batches behind the last one that was copied, and return these batches.

    A split ends where a row does, which may be in the middle of a block. The rest of the block
    follows there.
    """
    last = max(place for place, offset in enumerate(offsets) if offset != NO_OFFSET)
    position = offsets[last] + part.batches[last].record_count
    assumed: set[tuple[ObjectId, int]] = set()
    for place in range(last + 1, len(offsets)):
        offsets[place] = Offset(position)
        position += part.batches[place].record_count
        assumed.add((part.object_id, part.batches[place].byte_offset))
    return assumed


def _match(
    part: BlockPart, headers: HeaderReader, places: _Places, taken: set[int], position: int
) -> list[Offset]:
    offsets: list[Offset] = []
    for batch in part.batches:
        waiting = places.get(_identity(headers.at(part.object_id, batch.byte_offset)), deque())
        offset = NO_OFFSET
        while waiting and offset == NO_OFFSET:
            candidate = waiting.popleft()
            if candidate >= position and candidate not in taken:
                offset = Offset(candidate)
                taken.add(candidate)
        offsets.append(offset)
    return offsets


async def _places(
    evidence: PartitionEvidence, store: ObjectStore, tier: RemoteTier, lower: int
) -> _Places:
    found: dict[int, _Identity] = {}
    for stretch in evidence.stretches:
        if stretch.end > lower and isinstance(stretch.item, SplitRange):
            entry, key = stretch.item.entry, stretch.item.found.info.key
            [data] = await store.get_ranges(key, [Range(entry.byte_offset, entry.byte_end)])
            _add(found, memoryview(data))
    for segment in evidence.segments:
        if segment.end > lower and isinstance(segment.item, FoundSegmentObjects):
            opened = await open_whole(_finished(segment.item), tier)
            async for buffer in whole_batches(opened):
                _add(found, buffer)
    places: _Places = defaultdict(deque)
    for offset in sorted(offset for offset in found if offset >= lower):
        places[found[offset]].append(offset)
    return places


def _add(found: dict[int, _Identity], data: memoryview) -> None:
    for _, header in iter_batches(data):
        found[header.base_offset] = _identity(header)


def _identity(header: BatchHeader) -> _Identity:
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return _Identity(
        length=header.length,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        records_count=header.records_count,
        crc=0 if is_append_time else header.crc,
    )


def _finished(found: FoundSegmentObjects) -> Segment:
    return Segment(
        **asdict(found.segment) | {"leader_epochs": tuple(found.segment.leader_epochs)},
        state=SegmentState.COPY_FINISHED,
        chained=False,
        owned=True,
        added_ms=0,
        changed_ms=0,
        uploaded=found.uploaded,
    )
