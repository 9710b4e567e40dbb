"""The contents of one object of a segment: its log, its indexes or its manifest.

The control plane is not needed. Indexes, and a log that is compressed or encrypted, can be read
only with the manifest that lies beside them. Encrypted objects also need the private key.
"""

import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from stratalog.batch.frames import iter_batches
from stratalog.checks.inspect import InspectedBatch, inspect_batch
from stratalog.checks.object_batches import read_batches
from stratalog.errors import DamagedError
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import Buffer, ObjectStore
from stratalog.segment.batch_framing import BatchFraming
from stratalog.segment.chunk_encoding import decode_chunk
from stratalog.segment.cipher import SegmentCipher
from stratalog.segment.epoch_checkpoint import decode_checkpoint
from stratalog.segment.errors import IndexDamagedError, KeyMissingError
from stratalog.segment.index_object import read_index
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.keys import INDEXES_SUFFIX, LOG_SUFFIX, MANIFEST_SUFFIX, SUFFIXES
from stratalog.segment.manifest import IndexRange, Manifest, parse_manifest
from stratalog.segment.model import IndexKind
from stratalog.segment.producer_snapshot import decode_snapshot
from stratalog.segment.txn_index import decode_aborted

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


@dataclass(slots=True, kw_only=True)
class InspectedIndex:
    kind: IndexKind
    size_bytes: int
    """The size as stored."""
    entries: Sequence[Mapping[str, int]] = ()
    """Offsets in offset and time indexes are relative to the segment's base offset, as stored."""
    error: str | None = None

    def as_dict(self) -> dict[str, object]:
        return {
            "kind": str(self.kind),
            "size_bytes": self.size_bytes,
            "error": self.error,
            "entries": [dict(entry) for entry in self.entries],
        }


@dataclass(slots=True, kw_only=True)
class SegmentInspection:
    key: str
    size_bytes: int
    manifest: Manifest | None = None
    """The manifest: the object itself, or the manifest beside it."""
    indexes: list[InspectedIndex] = field(default_factory=list)
    batches: list[InspectedBatch] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Damage of the object as a whole."""

    @property
    def ok(self) -> bool:
        parts: list[InspectedBatch | InspectedIndex] = [*self.batches, *self.indexes]
        return not self.errors and all(part.error is None for part in parts)

    @property
    def key_base(self) -> str:
        return self.key[: -len(self.suffix)]

    @property
    def suffix(self) -> str:
        return next(suffix for suffix in SUFFIXES if self.key.endswith(suffix))

    def as_dict(self) -> dict[str, object]:
        return {
            "key": self.key,
            "size_bytes": self.size_bytes,
            "ok": self.ok,
            "errors": self.errors,
            "manifest": self.manifest and describe_manifest(self.manifest),
            "indexes": [index.as_dict() for index in self.indexes],
            "batches": [batch.as_dict() for batch in self.batches],
        }


def is_segment_object(key: str) -> bool:
    return key.endswith(SUFFIXES)


def describe_manifest(manifest: Manifest) -> dict[str, object]:
    """Return the fields of a manifest, without the lists that only programs read."""
    chunks, header = manifest.chunks, manifest.encryption
    return {
        "log_bytes": chunks.original_bytes,
        "stored_log_bytes": chunks.stored_bytes,
        "chunks": chunks.count,
        "chunk_bytes": chunks.chunk_bytes,
        "compressed": manifest.compressed,
        "encrypted_for": header and header.key_id,
        "indexes": {
            kind.value: index_range.size_bytes for kind, index_range in manifest.indexes.items()
        },
        "segment": manifest.segment and dict(manifest.segment),
    }


async def inspect_segment_object(
    store: ObjectStore, key: str, keys: KeyRing, *, records: bool = False
) -> SegmentInspection:
    """Read the object as its suffix says. Damage is reported, never raised.

    Raises `ObjectNotFoundError` if there is no such object.
    """
    inspection = SegmentInspection(key=key, size_bytes=(await store.head(key)).size_bytes)
    try:
        cipher = await _open(store, inspection, keys)
        if inspection.suffix == LOG_SUFFIX:
            async for batch in _log(store, inspection, cipher, records):
                inspection.batches.append(batch)
        elif inspection.suffix == INDEXES_SUFFIX:
            inspection.indexes += await _indexes(store, inspection, cipher)
    except (DamagedError, KeyMissingError) as error:
        inspection.errors.append(str(error))
    return inspection


async def _open(
    store: ObjectStore, inspection: SegmentInspection, keys: KeyRing
) -> SegmentCipher | None:
    """Parse the manifest, if there is one, and unseal the data key if the object needs it."""
    key = inspection.key_base + MANIFEST_SUFFIX
    try:
        manifest = parse_manifest((await store.get(key)).data, f"object {key}")
    except ObjectNotFoundError:
        return None
    inspection.manifest = manifest
    if manifest.encryption is None or inspection.suffix == MANIFEST_SUFFIX:
        return None
    return keys.open(manifest.encryption, f"object {key}")


async def _log(
    store: ObjectStore, inspection: SegmentInspection, cipher: SegmentCipher | None, records: bool
) -> AsyncIterator[InspectedBatch]:
    manifest, key = inspection.manifest, inspection.key
    if manifest is None or (not manifest.compressed and manifest.encryption is None):
        async for position, header, data in read_batches(store, key, 0, inspection.size_bytes):
            yield inspect_batch(position, None, header, data, records)
        return
    framing = BatchFraming()
    position = 0
    async for chunk in _chunks(store, key, manifest, cipher):
        for buffer in framing.push(chunk):
            for at, header in iter_batches(buffer):
                data = buffer[at : at + header.size_bytes]
                yield inspect_batch(position + at, None, header, data, records)
            position += len(buffer)
    framing.finish()


async def _chunks(
    store: ObjectStore, key: str, manifest: Manifest, cipher: SegmentCipher | None
) -> AsyncIterator[Buffer]:
    for chunk in range(manifest.chunks.count):
        (stored,) = await store.get_ranges(key, [manifest.chunks.stored_range(chunk)])
        yield decode_chunk(stored, chunk, manifest, cipher, f"object {key}")


async def _indexes(
    store: ObjectStore, inspection: SegmentInspection, cipher: SegmentCipher | None
) -> list[InspectedIndex]:
    manifest, name = inspection.manifest, f"object {inspection.key}"
    if manifest is None:
        beside = inspection.key_base + MANIFEST_SUFFIX
        inspection.errors.append(f"without its manifest, {beside}, its parts cannot be located")
        return []
    data = memoryview((await store.get(inspection.key)).data)
    if len(data) != manifest.indexes_bytes:
        expected = f"its manifest says {manifest.indexes_bytes}"
        inspection.errors.append(f"{name} has {len(data)} bytes, {expected}")
    found: list[InspectedIndex] = []
    for kind, index_range in manifest.indexes.items():
        index = InspectedIndex(kind=kind, size_bytes=index_range.size_bytes)
        try:
            index.entries = _entries(kind, _read(manifest, kind, index_range, data, cipher, name))
        except DamagedError as error:
            index.error = str(error)
        found.append(index)
    return found


def _read(
    manifest: Manifest,
    kind: IndexKind,
    index_range: IndexRange,
    data: memoryview,
    cipher: SegmentCipher | None,
    name: str,
) -> bytes:
    return read_index(manifest, kind, data[index_range.position : index_range.end], cipher, name)


def _entries(kind: IndexKind, data: bytes) -> list[Mapping[str, int]]:
    match kind:
        case IndexKind.OFFSET:
            return _unpacked(_OFFSET_ENTRY, data, "relative_offset", "position")
        case IndexKind.TIMESTAMP:
            return _unpacked(_TIME_ENTRY, data, "timestamp", "relative_offset")
        case IndexKind.PRODUCER_SNAPSHOT:
            return [entry._asdict() for entry in decode_snapshot(data)]
        case IndexKind.LEADER_EPOCH:
            return [entry._asdict() for entry in decode_checkpoint(data)]
        case IndexKind.TRANSACTION:
            return [entry._asdict() for entry in decode_aborted(data)]


def _unpacked(entry: struct.Struct, data: bytes, *names: str) -> list[Mapping[str, int]]:
    if len(data) % entry.size:
        raise IndexDamagedError(f"{len(data)} bytes are not a multiple of {entry.size}")
    return [dict(zip(names, values, strict=True)) for values in entry.iter_unpack(data)]
