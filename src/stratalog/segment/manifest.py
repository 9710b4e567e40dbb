"""The `.rsm-manifest` object of a segment: JSON that says how to read the other two objects.

A manifest is parsed as strictly as the plugin parses it. Its description of the segment
(`remoteLogSegmentMetadata`) is for people: it may be absent, and no code may rely on it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from stratalog.ids import kafka_base64
from stratalog.segment.chunk_index import AnyChunks, parse_chunks
from stratalog.segment.errors import ManifestDamagedError
from stratalog.segment.json_object import JsonObject
from stratalog.segment.key_ring import EncryptionHeader, parse_encryption
from stratalog.segment.model import IndexKind
from stratalog.segment.remote_log_metadata import SegmentAdded

VERSION = "1"


class IndexRange(NamedTuple):
    """The stored bytes of an index in the `.indexes` object. May be empty."""

    position: int
    size_bytes: int

    @property
    def end(self) -> int:
        return self.position + self.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    chunks: AnyChunks
    indexes: Mapping[IndexKind, IndexRange]
    """Without TRANSACTION if no transaction was aborted."""
    compressed: bool
    """True if chunks are compressed. Indexes never are."""
    encryption: EncryptionHeader | None
    segment: Mapping[str, object] | None = None
    """The writer's description of the segment, unchecked."""

    @property
    def indexes_bytes(self) -> int:
        """The size of the `.indexes` object."""
        return max(one.end for one in self.indexes.values())

    def to_json(self) -> str:
        ranges = {kind.value: _range_to_json(self.indexes.get(kind)) for kind in IndexKind}
        fields: dict[str, object] = {
            "version": VERSION,
            "chunkIndex": self.chunks.to_json(),
            "segmentIndexes": ranges,
            "compression": self.compressed,
        }
        if self.encryption is not None:
            fields["encryption"] = self.encryption.to_json()
        if self.segment is not None:
            fields["remoteLogSegmentMetadata"] = self.segment
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)


def parse_manifest(text: str | bytes | bytearray | memoryview, name: str) -> Manifest:
    """Read and check the manifest that is the object, or belongs to the segment, `name`."""
    try:
        decoded = text if isinstance(text, str) else bytes(text).decode()
        return _parse(JsonObject(json.loads(decoded), "manifest"))
    except (ValueError, RecursionError) as error:
        # A JSONDecodeError is a ValueError too, and quotes no content.
        raise ManifestDamagedError(f"{name}: {error}") from None


def describe_segment(segment: SegmentAdded) -> dict[str, object]:
    """Describe a segment for its manifest, with the plugin's names and order."""
    topic_partition = {"topic": segment.partition.topic, "partition": segment.partition.partition}
    return {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": kafka_base64(segment.partition.topic_id),
                "topicPartition": topic_partition,
            },
            "id": kafka_base64(segment.segment_id),
        },
        "startOffset": segment.base_offset,
        "endOffset": segment.last_offset,
        "maxTimestampMs": segment.max_timestamp,
        "brokerId": segment.broker_id,
        "eventTimestampMs": segment.event_ms,
        "segmentLeaderEpochs": {
            str(epoch): start_offset for epoch, start_offset in segment.leader_epochs
        },
        "txnIdxEmpty": segment.txn_index_empty,
    }


def _parse(fields: JsonObject) -> Manifest:
    version = fields.take("version")
    if version not in (VERSION, int(VERSION)) or isinstance(version, bool):
        raise ValueError(
            f"manifest.version {version!r} is not {VERSION!r}: written by a newer one?"
        )
    encryption = fields.take_optional("encryption")
    segment = fields.take_optional("remoteLogSegmentMetadata")
    manifest = Manifest(
        chunks=parse_chunks(fields.nested("chunkIndex")),
        indexes=_parse_ranges(fields.nested("segmentIndexes")),
        compressed=fields.flag("compression"),
        encryption=None
        if encryption is None
        else parse_encryption(JsonObject(encryption, "manifest.encryption")),
        segment=segment if isinstance(segment, Mapping) else None,
    )
    fields.finish()
    return manifest


def _parse_ranges(fields: JsonObject) -> dict[IndexKind, IndexRange]:
    ranges: dict[IndexKind, IndexRange] = {
        kind: _parse_range(fields.nested(kind))
        for kind in IndexKind
        if kind is not IndexKind.TRANSACTION
    }
    transaction = fields.take(IndexKind.TRANSACTION)
    if transaction is not None:
        path = f"manifest.segmentIndexes.{IndexKind.TRANSACTION}"
        ranges[IndexKind.TRANSACTION] = _parse_range(JsonObject(transaction, path))
    fields.finish()
    return ranges


def _parse_range(fields: JsonObject) -> IndexRange:
    index_range = IndexRange(fields.integer("position"), fields.integer("size"))
    fields.finish()
    return index_range


def _range_to_json(index_range: IndexRange | None) -> dict[str, int] | None:
    return (
        None
        if index_range is None
        else {"position": index_range.position, "size": index_range.size_bytes}
    )
