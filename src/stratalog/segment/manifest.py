"""The `.rsm-manifest` object of a segment: JSON that says how to read the other two.

It is read as strictly as the plugin reads it. What it says about the segment itself
(`remoteLogSegmentMetadata`) is for people: nobody may rely on it, and it may be absent.
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
    """Where an index is inside the `.indexes` object, as it is stored there. May be empty."""

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
    """Whether chunks are. Indexes never are."""
    encryption: EncryptionHeader | None
    segment: Mapping[str, object] | None = None
    """What the writer said about the segment, unchecked."""

    @property
    def indexes_bytes(self) -> int:
        """The size of the `.indexes` object."""
        return max(place.end for place in self.indexes.values())

    def to_json(self) -> str:
        places = {kind.value: _place_to_json(self.indexes.get(kind)) for kind in IndexKind}
        fields: dict[str, object] = {
            "version": VERSION,
            "chunkIndex": self.chunks.to_json(),
            "segmentIndexes": places,
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
        # A JSONDecodeError is a ValueError too, and quotes positions only.
        raise ManifestDamagedError(f"{name}: {error}") from None


def describe_segment(segment: SegmentAdded) -> dict[str, object]:
    """What a manifest says about its segment, in the plugin's words and order."""
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
        indexes=_parse_places(fields.nested("segmentIndexes")),
        compressed=fields.flag("compression"),
        encryption=None
        if encryption is None
        else parse_encryption(JsonObject(encryption, "manifest.encryption")),
        segment=segment if isinstance(segment, Mapping) else None,
    )
    fields.finish()
    return manifest


def _parse_places(fields: JsonObject) -> dict[IndexKind, IndexRange]:
    places: dict[IndexKind, IndexRange] = {
        kind: _parse_place(fields.nested(kind))
        for kind in IndexKind
        if kind is not IndexKind.TRANSACTION
    }
    transaction = fields.take(IndexKind.TRANSACTION)
    if transaction is not None:
        path = f"manifest.segmentIndexes.{IndexKind.TRANSACTION}"
        places[IndexKind.TRANSACTION] = _parse_place(JsonObject(transaction, path))
    fields.finish()
    return places


def _parse_place(fields: JsonObject) -> IndexRange:
    place = IndexRange(fields.integer("position"), fields.integer("size"))
    fields.finish()
    return place


def _place_to_json(place: IndexRange | None) -> dict[str, int] | None:
    return None if place is None else {"position": place.position, "size": place.size_bytes}
