"""The objects of a topic that is adopted: found, checked against each other, never changed.

The checks cover everything that a reader will rely on. The manifest must make sense and describe
the segment that Kafka's metadata describes. The two other objects must have the sizes that the
manifest implies. An encrypted segment must open with one of this cluster's keys. No record is read.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from stratalog.block.keys import BLOCKS_PREFIX
from stratalog.control.segments.model import EpochStart, SegmentToAdd, SegmentUploaded
from stratalog.control.topics.model import AdoptedSegment
from stratalog.errors import DamagedError
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import Buffer, ObjectInfo, ObjectStore, Range
from stratalog.segment.cipher import SegmentCipher
from stratalog.segment.custom_metadata import decode_custom_metadata
from stratalog.segment.epoch_checkpoint import decode_checkpoint
from stratalog.segment.errors import IndexDamagedError, SegmentMismatchError
from stratalog.segment.index_object import read_index
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.keys import (
    INDEXES_SUFFIX,
    LOG_SUFFIX,
    MANIFEST_SUFFIX,
    segment_key_base,
)
from stratalog.segment.manifest import IndexRange, Manifest, parse_manifest
from stratalog.segment.model import IndexKind
from stratalog.segment.producer_snapshot import ProducerEntry, decode_snapshot
from stratalog.segment.remote_log_metadata import SegmentAdded
from stratalog.settings import Settings
from stratalog.topic.errors import OwnRealmError

_Decoded = TypeVar("_Decoded")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedSegment:
    record: SegmentAdded
    adopted: AdoptedSegment
    manifest: Manifest
    cipher: SegmentCipher | None


class AdoptedObjects:
    """The objects below one prefix of one store.

    This cluster deletes objects without rows below each of the `realms`.
    """

    def __init__(
        self, store: ObjectStore, *, key_prefix: str, keys: KeyRing, realms: Sequence[str] = ()
    ) -> None:
        self._store = store
        self._key_prefix = key_prefix
        self._keys = keys
        self._realms = realms

    async def check(self, record: SegmentAdded) -> CheckedSegment:
        key_base, text = await self._find(record)
        name = key_base + MANIFEST_SUFFIX
        manifest = parse_manifest(text, name)
        if manifest.chunks.original_bytes != record.size_bytes:
            raise SegmentMismatchError(
                f"{name} speaks of a log of {manifest.chunks.original_bytes} bytes, Kafka's"
                f" metadata of {record.size_bytes}"
            )
        log, indexes = await asyncio.gather(
            self._head(key_base + LOG_SUFFIX), self._head(key_base + INDEXES_SUFFIX)
        )
        _check_sizes(manifest, log, indexes)
        uploaded = SegmentUploaded(
            manifest=text,
            stored_bytes=log.size_bytes + indexes.size_bytes + len(text.encode()),
            has_aborted=_place(manifest, IndexKind.TRANSACTION).size_bytes > 0,
            custom_metadata=record.custom_metadata,
        )
        return CheckedSegment(
            record=record,
            adopted=AdoptedSegment(segment=self._to_add(record, key_base), uploaded=uploaded),
            manifest=manifest,
            cipher=await self._cipher(manifest, name),
        )

    async def epochs(self, segment: CheckedSegment) -> list[EpochStart]:
        """Read the leader-epoch checkpoint of a segment."""
        return await self._index(segment, IndexKind.LEADER_EPOCH, decode_checkpoint)

    async def producers(self, segment: CheckedSegment) -> list[ProducerEntry]:
        """Read the producer snapshot of a segment."""
        return await self._index(segment, IndexKind.PRODUCER_SNAPSHOT, decode_snapshot)

    async def _index(
        self, segment: CheckedSegment, kind: IndexKind, decode: Callable[[bytes], _Decoded]
    ) -> _Decoded:
        key = segment.adopted.segment.key_base + INDEXES_SUFFIX
        place = _place(segment.manifest, kind)
        stored: Buffer = b""
        if place.size_bytes:
            [stored] = await self._store.get_ranges(key, [Range(place.position, place.end)])
        data = read_index(segment.manifest, kind, stored, segment.cipher, key)
        try:
            return decode(data)
        except DamagedError as error:
            raise IndexDamagedError(f"object {key}: {error}") from error

    async def _find(self, record: SegmentAdded) -> tuple[str, str]:
        """Find the key base of the objects, and the text of the manifest.

        The plugin may have noted where it put the objects. It nevertheless looks for the manifest
        below the prefix that is configured today, so the manifest is searched there, too.
        """
        usual = self._key_base(record, self._key_prefix)
        noted = self._noted_key_base(record) or usual
        self._refuse_own_realm(noted)
        for key_base in dict.fromkeys((noted, usual)):
            try:
                stored = await self._store.get(key_base + MANIFEST_SUFFIX)
            except ObjectNotFoundError:
                continue
            return noted, _text(stored.data, key_base + MANIFEST_SUFFIX)
        raise SegmentMismatchError(
            f"{noted}{MANIFEST_SUFFIX} is not in {self._store.url}, although Kafka's metadata says"
            " that the segment is complete: check the store's address and the plugin's key.prefix"
        )

    def _noted_key_base(self, record: SegmentAdded) -> str | None:
        if record.custom_metadata is None:
            return None
        noted = decode_custom_metadata(record.custom_metadata, f"segment {record.segment_id}")
        prefix = self._key_prefix if noted.object_prefix is None else noted.object_prefix
        if noted.object_key is not None:
            return prefix + noted.object_key
        return self._key_base(record, prefix)

    def _key_base(self, record: SegmentAdded, prefix: str) -> str:
        where = record.partition
        return segment_key_base(
            prefix,
            where.topic,
            where.topic_id,
            where.partition,
            record.base_offset,
            record.segment_id,
        )

    def _refuse_own_realm(self, key_base: str) -> None:
        place = place_of(self._store.url, key_base)
        for realm in self._realms:
            if place.startswith(realm):
                raise OwnRealmError(
                    f"{place} lies below {realm}, where this cluster deletes what it has no rows"
                    " for: give the cluster another remote.prefix or another store"
                )

    async def _head(self, key: str) -> ObjectInfo:
        try:
            return await self._store.head(key)
        except ObjectNotFoundError:
            raise SegmentMismatchError(
                f"{key} is not in {self._store.url}, although its manifest is: the segment is"
                " not whole"
            ) from None

    async def _cipher(self, manifest: Manifest, name: str) -> SegmentCipher | None:
        if manifest.encryption is None:
            return None
        return await asyncio.to_thread(self._keys.open, manifest.encryption, name)

    def _to_add(self, record: SegmentAdded, key_base: str) -> SegmentToAdd:
        return SegmentToAdd(
            segment_id=record.segment_id,
            topic_id=record.partition.topic_id,
            partition=record.partition.partition,
            base_offset=record.base_offset,
            last_offset=record.last_offset,
            size_bytes=record.size_bytes,
            max_timestamp=record.max_timestamp,
            leader_epochs=record.leader_epochs,
            key_base=key_base,
            store_url=self._store.url,
            broker_id=record.broker_id,
        )


def own_realms(settings: Settings) -> list[str]:
    """List the places below which this cluster deletes objects without rows."""
    segments = settings.remote.objects or settings.storage.objects
    return [
        place_of(settings.storage.objects, BLOCKS_PREFIX),
        place_of(segments, settings.remote.prefix),
    ]


def place_of(store_url: str, key: str) -> str:
    """Spell a place in one way, however its store was named."""
    scheme, _, rest = store_url.partition(":")
    if scheme == "file":
        rest = f"//{Path(rest.removeprefix('//')).resolve()}"
    return f"{scheme}:{rest.rstrip('/')}/{key}"


def _place(manifest: Manifest, kind: IndexKind) -> IndexRange:
    return manifest.indexes.get(kind, IndexRange(0, 0))


def _text(data: Buffer, name: str) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        raise SegmentMismatchError(f"{name} is not text") from None


def _check_sizes(manifest: Manifest, log: ObjectInfo, indexes: ObjectInfo) -> None:
    if indexes.size_bytes != manifest.indexes_bytes:
        raise _wrong_size(indexes, f"{manifest.indexes_bytes}")
    expected_bytes = manifest.chunks.stored_bytes
    # A seek table may follow compressed chunks that are not encrypted.
    may_be_longer = manifest.compressed and manifest.encryption is None
    if log.size_bytes < expected_bytes or (log.size_bytes > expected_bytes and not may_be_longer):
        raise _wrong_size(log, f"{'at least ' if may_be_longer else ''}{expected_bytes}")


def _wrong_size(info: ObjectInfo, expected: str) -> SegmentMismatchError:
    return SegmentMismatchError(
        f"{info.key} has {info.size_bytes} bytes, its manifest says {expected}"
    )
