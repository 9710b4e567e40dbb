"""The search of a store for objects that the control plane does not know.

Listings are read, the footers of unknown blocks and split files, the manifests of unknown
segments, and the notes of deletions. Nothing is written. An object that cannot be read is named,
and left where it is.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from stratalog.block.errors import FooterDamagedError
from stratalog.block.footer import TRAILER_BYTES, BlockFooter, decode_footer, parse_trailer
from stratalog.block.keys import BLOCKS_PREFIX, SPLITS_PREFIX, parse_block_key, parse_split_key
from stratalog.checks.remote_tier import RemoteTier
from stratalog.checks.report import Progress
from stratalog.control.segments.model import EpochStart, SegmentToAdd, SegmentUploaded
from stratalog.errors import DamagedError
from stratalog.ids import NO_BROKER, BrokerId, LeaderEpoch, ObjectId, Offset, SegmentId
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import ObjectInfo, ObjectStore, Range
from stratalog.recovery.deletion_notes import Deletions, read_deletions
from stratalog.segment.errors import ManifestDamagedError
from stratalog.segment.json_object import INT32_LAST, JsonObject
from stratalog.segment.keys import (
    INDEXES_SUFFIX,
    LOG_SUFFIX,
    MANIFEST_SUFFIX,
    SUFFIXES,
    SegmentKey,
    parse_segment_key,
)
from stratalog.segment.manifest import Manifest, parse_manifest

T = TypeVar("T")

_AT_ONCE = 32
_INT64_LAST = (1 << 63) - 1
_TAIL_BYTES = 64 * 1024
"""Most footers fit into it, so that one request reads them."""


class FoundObject(NamedTuple):
    info: ObjectInfo
    footer: BlockFooter


class FoundSegmentObjects(NamedTuple):
    topic_name: str
    segment: SegmentToAdd
    uploaded: SegmentUploaded


@dataclass(slots=True, kw_only=True)
class Survey:
    objects: list[FoundObject] = field(default_factory=list)
    """Blocks and split files without a row."""
    segments: list[FoundSegmentObjects] = field(default_factory=list)
    stored: set[ObjectId] = field(default_factory=set)
    """All blocks and split files that the store has, known or not."""
    deletions: Deletions = field(default_factory=Deletions)
    unreadable: list[str] = field(default_factory=list)
    """Keys of objects that describe nothing, with the reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The ids that have a row, whatever its state."""

    objects: set[ObjectId]
    segments: set[SegmentId]


async def survey(store: ObjectStore, tier: RemoteTier, known: Known, progress: Progress) -> Survey:
    deletions, unreadable = await read_deletions(store)
    found = Survey(deletions=deletions, unreadable=unreadable)
    unknown: list[ObjectInfo] = []
    for prefix, parse in ((BLOCKS_PREFIX, parse_block_key), (SPLITS_PREFIX, parse_split_key)):
        async for info in store.list(prefix):
            object_id = parse(info.key)
            if object_id is None:
                continue
            found.stored.add(object_id)
            if object_id not in known.objects:
                unknown.append(info)

    async def read_object(info: ObjectInfo) -> FoundObject:
        return FoundObject(info, await read_footer(store, info))

    found.objects = await _read_all(unknown, read_object, found, "objects", progress)
    manifests = [each async for each in _manifests(tier, known)]

    async def read_segment(parts: _SegmentParts) -> FoundSegmentObjects:
        return await _read_segment(tier.stores.own, parts)

    segments = await _read_all(manifests, read_segment, found, "segments", progress)
    # Segments of a Kafka cluster that shares the store name one of its brokers.
    found.segments = [each for each in segments if each.segment.broker_id == NO_BROKER]
    return found


async def read_footer(store: ObjectStore, info: ObjectInfo) -> BlockFooter:
    size_bytes = info.size_bytes
    if size_bytes < TRAILER_BYTES:
        raise FooterDamagedError(f"{size_bytes} bytes are too few for a trailer")
    start = max(size_bytes - _TAIL_BYTES, 0)
    [tail] = await store.get_ranges(info.key, [Range(start, size_bytes)])
    footer_bytes = parse_trailer(memoryview(tail)[-TRAILER_BYTES:])[0] + TRAILER_BYTES
    if footer_bytes > size_bytes:
        raise FooterDamagedError("the footer begins before the object")
    if footer_bytes > len(tail):
        [tail] = await store.get_ranges(info.key, [Range(size_bytes - footer_bytes, size_bytes)])
    return decode_footer(memoryview(tail)[-footer_bytes:])


_Item = TypeVar("_Item", ObjectInfo, "_SegmentParts")


async def _read_all(
    items: Sequence[_Item],
    read: Callable[[_Item], Awaitable[T]],
    found: Survey,
    title: str,
    progress: Progress,
) -> list[T]:
    results: list[T] = []
    for start in range(0, len(items), _AT_ONCE):
        progress(title, start, len(items))
        page = items[start : start + _AT_ONCE]
        answers = await asyncio.gather(*map(read, page), return_exceptions=True)
        for item, answer in zip(page, answers, strict=True):
            if isinstance(answer, DamagedError | ObjectNotFoundError):
                found.unreadable.append(f"{item.key}: {answer}")
            elif isinstance(answer, BaseException):
                raise answer
            else:
                results.append(answer)
    return results


class _SegmentParts(NamedTuple):
    named: SegmentKey
    infos: Mapping[str, ObjectInfo]

    @property
    def key(self) -> str:
        return self.infos[MANIFEST_SUFFIX].key


async def _manifests(tier: RemoteTier, known: Known) -> AsyncIterator[_SegmentParts]:
    """Yield the unknown segments that are whole: the manifest is put last."""
    parts: dict[str, ObjectInfo] = {}
    last: SegmentKey | None = None
    async for info in tier.stores.own.list(tier.prefix):
        named = parse_segment_key(info.key, tier.prefix)
        if named is None:
            continue
        if last is None or named.segment_id != last.segment_id:
            parts = {}
        last = named
        parts[named.suffix] = info
        if len(parts) == len(SUFFIXES) and named.segment_id not in known.segments:
            yield _SegmentParts(named, parts)


async def _read_segment(store: ObjectStore, parts: _SegmentParts) -> FoundSegmentObjects:
    text = bytes((await store.get(parts.key)).data).decode(errors="replace")
    manifest = parse_manifest(text, parts.key)
    uploaded = SegmentUploaded(
        manifest=text,
        stored_bytes=sum(info.size_bytes for info in parts.infos.values()),
        has_aborted=_has_aborted(manifest),
    )
    if parts.infos[LOG_SUFFIX].size_bytes < manifest.chunks.stored_bytes:
        raise ManifestDamagedError(
            f"{parts.infos[LOG_SUFFIX].key} is shorter than its manifest says"
        )
    if parts.infos[INDEXES_SUFFIX].size_bytes < manifest.indexes_bytes:
        raise ManifestDamagedError(f"{parts.infos[INDEXES_SUFFIX].key} is cut short")
    return FoundSegmentObjects(parts.named.topic_name, _described(parts, manifest), uploaded)


def _has_aborted(manifest: Manifest) -> bool:
    return (
        bool(manifest.segment)
        and manifest.segment is not None
        and (manifest.segment.get("txnIdxEmpty") is False)
    )


def _described(parts: _SegmentParts, manifest: Manifest) -> SegmentToAdd:
    """Nothing else tells of the segment, so that a recovery has to go by its description."""
    named = parts.named
    try:
        described = JsonObject(manifest.segment, "remoteLogSegmentMetadata")
        base = described.integer("startOffset", last=_INT64_LAST - 1)
        segment = SegmentToAdd(
            segment_id=named.segment_id,
            topic_id=named.topic_id,
            partition=named.partition,
            base_offset=Offset(base),
            last_offset=Offset(described.integer("endOffset", first=base, last=_INT64_LAST - 1)),
            size_bytes=manifest.chunks.original_bytes,
            max_timestamp=described.integer("maxTimestampMs", first=-1, last=_INT64_LAST),
            leader_epochs=_epochs(described.nested("segmentLeaderEpochs")),
            key_base=parts.key.removesuffix(MANIFEST_SUFFIX),
            broker_id=BrokerId(described.integer("brokerId", first=-1)),
        )
    except ValueError as error:
        raise ManifestDamagedError(f"{parts.key} does not describe its segment: {error}") from error
    if base != named.base_offset:
        raise ManifestDamagedError(f"{parts.key} tells that it begins at {base}")
    return segment


def _epochs(described: JsonObject) -> list[EpochStart]:
    starts = [
        EpochStart(
            LeaderEpoch(_epoch_of(epoch)), Offset(described.integer(epoch, last=_INT64_LAST))
        )
        for epoch in described.names()
    ]
    return sorted(starts)


def _epoch_of(text: str) -> int:
    epoch = int(text)
    if not 0 <= epoch <= INT32_LAST:
        raise ValueError(f"{epoch} is no epoch")
    return epoch
