"""The upload of a segment, in two steps that may run in different processes.

    1. The segment is added to the metadata store          (not here)
    2. `upload_log`       puts `.log`                      in a process that has the records
    3. `upload_indexes`   puts `.indexes`, then the manifest  in the process that finishes the
                                                           partition's segments in order
    4. The segment is finished in the metadata store, then chained   (not here)

The manifest comes last, as in Kafka: a segment with a manifest can be read completely. A crash

- before 2 is done leaves nothing, or the parts of an upload that the store forgets;
- between 2 and the end of 3 leaves objects of a segment that is only started. No reader sees it,
  and it is deleted once it is older than the limit for unfinished segments, as in Kafka;
- after 3 leaves a complete segment that is not finished, which is deleted in the same way.

Both steps may be repeated under the same key: they overwrite. A repeated `upload_log` makes new
random data, so its result must come from the attempt that wrote last. To avoid that question, give
each attempt a segment id of its own.

Encryption: step 2 makes the data key and hands it on inside an `EncryptionHeader`, sealed with the
active public key. So workers hold no private key, and no data key travels in the clear. Step 3
opens the seal and therefore needs the private key of that pair.
"""

import asyncio
import json
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass

from stratalog.control.segments.model import SegmentToAdd, SegmentUploaded
from stratalog.objects.store import Buffer, ObjectStore
from stratalog.segment.chunk_encoding import ChunkEncoder, EncodedEnd, Encoding
from stratalog.segment.chunk_index import AnyChunks, parse_chunks
from stratalog.segment.errors import SegmentMismatchError
from stratalog.segment.index_object import EncodedIndexes, encode_indexes
from stratalog.segment.json_object import JsonObject
from stratalog.segment.key_ring import EncryptionHeader, KeyRing, parse_encryption
from stratalog.segment.keys import INDEXES_SUFFIX, LOG_SUFFIX, MANIFEST_SUFFIX
from stratalog.segment.manifest import Manifest, describe_segment
from stratalog.segment.model import SegmentIndexes
from stratalog.segment.remote_log_metadata import added_record


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedLog:
    """The result of step 2, for step 3. A plain value without secrets, fit to cross processes."""

    chunks: AnyChunks
    compressed: bool
    encryption: EncryptionHeader | None
    stored_bytes: int
    """The size of the `.log` object, a seek table included."""

    def to_json(self) -> str:
        fields = {
            "chunkIndex": self.chunks.to_json(),
            "compression": self.compressed,
            "encryption": None if self.encryption is None else self.encryption.to_json(),
            "storedBytes": self.stored_bytes,
        }
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "UploadedLog":
        fields = JsonObject(json.loads(text), "uploaded log")
        encryption = fields.take("encryption")
        log = cls(
            chunks=parse_chunks(fields.nested("chunkIndex")),
            compressed=fields.flag("compression"),
            encryption=None
            if encryption is None
            else parse_encryption(JsonObject(encryption, "uploaded log.encryption")),
            stored_bytes=fields.integer("storedBytes", last=1 << 32),
        )
        fields.finish()
        return log


async def upload_log(
    store: ObjectStore,
    key_base: str,
    parts: AsyncIterable[Buffer],
    encoding: Encoding,
    keys: KeyRing,
) -> UploadedLog:
    """Put the `.log` object of a segment whose records are `parts`. Holds one chunk in memory.

    If `parts` raises, nothing is stored, and the error is raised here.
    """
    cipher, header = keys.new_cipher() if encoding.encrypt else (None, None)
    log = _EncodedLog(parts, ChunkEncoder(encoding.chunk_bytes, encoding.compress, cipher))
    key = key_base + LOG_SUFFIX
    stored_bytes = await store.put_stream(key, log.stream())
    end = log.end
    assert end is not None, "a store takes the whole stream"
    expected_bytes = end.chunks.stored_bytes + len(end.seek_table)
    if stored_bytes != expected_bytes:
        raise SegmentMismatchError(f"{key}: {stored_bytes} bytes were stored, not {expected_bytes}")
    return UploadedLog(
        chunks=end.chunks,
        compressed=encoding.compress,
        encryption=header,
        stored_bytes=stored_bytes,
    )


async def upload_indexes(
    store: ObjectStore,
    key_base: str,
    indexes: SegmentIndexes,
    log: UploadedLog,
    segment: SegmentToAdd,
    topic_name: str,
    keys: KeyRing,
    *,
    event_ms: int,
) -> SegmentUploaded:
    """Put the `.indexes` object, then the manifest. Return the value to finish the segment with."""
    if log.chunks.original_bytes != segment.size_bytes:
        raise SegmentMismatchError(
            f"{key_base}{LOG_SUFFIX}: holds {log.chunks.original_bytes} bytes of records, but the"
            f" segment was added with {segment.size_bytes}"
        )
    encoded = await asyncio.to_thread(_seal_indexes, indexes, log, keys, key_base)
    added = added_record(
        segment, topic_name, event_ms=event_ms, txn_index_empty=not indexes.transaction
    )
    manifest = Manifest(
        chunks=log.chunks,
        indexes=encoded.ranges,
        compressed=log.compressed,
        encryption=log.encryption,
        segment=describe_segment(added),
    )
    text = manifest.to_json()
    await store.put(key_base + INDEXES_SUFFIX, encoded.parts)
    await store.put(key_base + MANIFEST_SUFFIX, [text.encode()])
    return SegmentUploaded(
        manifest=text,
        stored_bytes=log.stored_bytes + manifest.indexes_bytes + len(text.encode()),
        has_aborted=bool(indexes.transaction),
    )


def _seal_indexes(
    indexes: SegmentIndexes, log: UploadedLog, keys: KeyRing, name: str
) -> EncodedIndexes:
    """Encode indexes, on a thread: opening an RSA seal takes milliseconds, large indexes more."""
    cipher = None if log.encryption is None else keys.open(log.encryption, name)
    return encode_indexes(indexes, cipher)


class _EncodedLog:
    """The stored form of a log as a stream, with `end` set after its last byte."""

    def __init__(self, parts: AsyncIterable[Buffer], encoder: ChunkEncoder) -> None:
        self._parts = parts
        self._encoder = encoder
        self.end: EncodedEnd | None = None

    async def stream(self) -> AsyncIterator[Buffer]:
        async for part in self._parts:
            for encoded in await self._push(part):
                yield encoded
        self.end = await asyncio.to_thread(self._encoder.finish)
        for encoded in self.end.parts:
            yield encoded
        if self.end.seek_table:
            yield self.end.seek_table

    async def _push(self, part: Buffer) -> list[Buffer]:
        if self._encoder.completes_chunk(len(part)):
            return await asyncio.to_thread(self._encoder.push, part)
        return self._encoder.push(part)
