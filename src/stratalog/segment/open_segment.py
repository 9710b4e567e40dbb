"""A segment that is open for reading: its manifest is parsed, and its data key unsealed."""

from dataclasses import dataclass
from typing import TypeAlias

from stratalog.control.segments.model import Segment
from stratalog.ids import SegmentId
from stratalog.objects.store import Buffer, ObjectStore, Range
from stratalog.segment.chunk_encoding import decode_chunk
from stratalog.segment.chunk_index import AnyChunks, FixedChunks
from stratalog.segment.cipher import SegmentCipher
from stratalog.segment.errors import SegmentMismatchError
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.keys import INDEXES_SUFFIX, LOG_SUFFIX, MANIFEST_SUFFIX
from stratalog.segment.manifest import Manifest, parse_manifest

PLAIN_CHUNK_BYTES = 4 * 1024 * 1024
"""The size of the chunks in which a plain log is read ahead and cached. The chunks of its manifest
do not matter to a reader: they are not marked in the bytes, and may be tiny or huge."""


Edition: TypeAlias = tuple[SegmentId, int]
"""A segment's id, and a hash of its parts that may change: a repair makes a new manifest, and an
adopted segment may be adopted again from another store. All that is cached goes by it."""


def edition_of(segment: Segment) -> Edition:
    assert segment.uploaded is not None, f"segment {segment.segment_id} is not finished"
    changing = segment.uploaded.manifest, segment.store_url, segment.key_base
    return segment.segment_id, hash(changing)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSegment:
    segment: Segment
    edition: Edition
    manifest: Manifest
    store: ObjectStore
    cipher: SegmentCipher | None
    is_plain: bool
    """True if the object is the log, byte by byte."""
    chunks: AnyChunks
    """The chunks that are read as a whole: the manifest's, or for a plain log our own."""

    @property
    def log_key(self) -> str:
        return self.segment.key_base + LOG_SUFFIX

    @property
    def indexes_key(self) -> str:
        return self.segment.key_base + INDEXES_SUFFIX

    def original_range(self, chunks: range) -> Range:
        """Return the bytes of the log in consecutive chunks."""
        start = self.chunks.original_range(chunks[0]).start
        return Range(start, self.chunks.original_range(chunks[-1]).end)

    def decode(self, chunk: int, stored: Buffer) -> Buffer:
        if self.is_plain:
            return stored
        return decode_chunk(stored, chunk, self.manifest, self.cipher, f"object {self.log_key}")


def open_segment(
    segment: Segment, store: ObjectStore, keys: KeyRing, *, plain_chunk_bytes: int
) -> OpenSegment:
    """Parse the manifest in the segment's row. Unsealing a key takes milliseconds."""
    assert segment.uploaded is not None, f"segment {segment.segment_id} is not finished"
    name = f"object {segment.key_base}{MANIFEST_SUFFIX}"
    manifest = parse_manifest(segment.uploaded.manifest, name)
    if manifest.chunks.original_bytes != segment.size_bytes:
        raise SegmentMismatchError(
            f"{name} speaks of a log of {manifest.chunks.original_bytes} bytes, the control plane"
            f" of {segment.size_bytes}"
        )
    header = manifest.encryption
    is_plain = header is None and not manifest.compressed
    return OpenSegment(
        segment=segment,
        edition=edition_of(segment),
        manifest=manifest,
        store=store,
        cipher=None if header is None else keys.open(header, name),
        is_plain=is_plain,
        chunks=_plain_chunks(segment, plain_chunk_bytes) if is_plain else manifest.chunks,
    )


def _plain_chunks(segment: Segment, chunk_bytes: int) -> FixedChunks:
    return FixedChunks(
        chunk_bytes=chunk_bytes,
        original_bytes=segment.size_bytes,
        stored_chunk_bytes=chunk_bytes,
        final_stored_bytes=(segment.size_bytes - 1) % chunk_bytes + 1,
    )
