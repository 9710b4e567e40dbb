"""The `.indexes` object of a segment: its indexes one after the other, never compressed.

An encrypted segment has each index encrypted as a unit of its own. An empty index takes no bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stratalog.objects.store import Buffer
from stratalog.segment.cipher import SegmentCipher
from stratalog.segment.errors import IndexObjectDamagedError
from stratalog.segment.manifest import IndexRange, Manifest
from stratalog.segment.model import IndexKind, SegmentIndexes


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedIndexes:
    parts: Sequence[Buffer]
    ranges: Mapping[IndexKind, IndexRange]


def encode_indexes(indexes: SegmentIndexes, cipher: SegmentCipher | None) -> EncodedIndexes:
    parts: list[Buffer] = []
    ranges: dict[IndexKind, IndexRange] = {}
    position = 0
    for kind, plain in _files(indexes).items():
        stored: Buffer = cipher.seal(plain) if cipher is not None and plain else plain
        if kind is not IndexKind.TRANSACTION or plain:
            ranges[kind] = IndexRange(position, len(stored))
        if plain:
            parts.append(stored)
        position += len(stored)
    return EncodedIndexes(parts=parts, ranges=ranges)


def read_index(
    manifest: Manifest, kind: IndexKind, stored: Buffer, cipher: SegmentCipher | None, name: str
) -> bytes:
    """Decode one index from its stored bytes of the object `name`. b"" if there is none."""
    index_range = manifest.indexes.get(kind, IndexRange(0, 0))
    if len(stored) != index_range.size_bytes:
        raise IndexObjectDamagedError(
            f"{name}: the {kind} index takes {len(stored)} bytes,"
            f" the manifest says {index_range.size_bytes}"
        )
    if manifest.encryption is None or not index_range.size_bytes:
        return bytes(stored)
    assert cipher is not None, "an encrypted segment is read with its cipher"
    try:
        return bytes(cipher.unseal(stored))
    except ValueError as error:
        raise IndexObjectDamagedError(f"{name}: the {kind} index: {error}") from None


def read_indexes(
    manifest: Manifest, stored: Buffer, cipher: SegmentCipher | None, name: str
) -> SegmentIndexes:
    """Decode all indexes from the whole object `name`."""
    if len(stored) != manifest.indexes_bytes:
        raise IndexObjectDamagedError(
            f"{name}: has {len(stored)} bytes, the manifest says {manifest.indexes_bytes}"
        )
    view = memoryview(stored)

    def read(kind: IndexKind) -> bytes:
        index_range = manifest.indexes.get(kind, IndexRange(0, 0))
        return read_index(
            manifest, kind, view[index_range.position : index_range.end], cipher, name
        )

    return SegmentIndexes(
        offset=read(IndexKind.OFFSET),
        timestamp=read(IndexKind.TIMESTAMP),
        producer_snapshot=read(IndexKind.PRODUCER_SNAPSHOT),
        leader_epoch=read(IndexKind.LEADER_EPOCH),
        transaction=read(IndexKind.TRANSACTION),
    )


def _files(indexes: SegmentIndexes) -> dict[IndexKind, bytes]:
    return {
        IndexKind.OFFSET: indexes.offset,
        IndexKind.TIMESTAMP: indexes.timestamp,
        IndexKind.PRODUCER_SNAPSHOT: indexes.producer_snapshot,
        IndexKind.LEADER_EPOCH: indexes.leader_epoch,
        IndexKind.TRANSACTION: indexes.transaction,
    }
