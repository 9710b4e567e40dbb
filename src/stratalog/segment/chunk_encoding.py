"""The encoding of a log as stored chunks: cut, compress, encrypt, and back.

A compressed chunk is one zstd frame. An encrypted chunk is one AES-GCM unit, around the frame if
there is one. Chunks follow each other without anything between them. Without compression and
encryption, the object is the log itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stratalog.objects.store import Buffer
from stratalog.segment.chunk_index import MAX_LOG_BYTES, AnyChunks, FixedChunks, VariableChunks
from stratalog.segment.cipher import SEAL_BYTES, SegmentCipher
from stratalog.segment.errors import ChunkDamagedError, EncodingError
from stratalog.segment.manifest import Manifest
from stratalog.segment.seek_table import SeekEntry, encode_seek_table, frame_checksum
from stratalog.segment.zstd_frame import compress_frame, decompress_frame

MAX_CHUNK_BYTES = (1 << 30) - 1
"""The plugin's own limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """How the logs of new segments are stored."""

    chunk_bytes: int = 4 << 20
    """The least bytes that a read fetches. Smaller chunks compress worse and take more requests."""
    compress: bool = False
    encrypt: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.chunk_bytes <= MAX_CHUNK_BYTES:
            raise EncodingError(
                f"chunks of {self.chunk_bytes} bytes are not in [1, {MAX_CHUNK_BYTES}]"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedEnd:
    """The last bytes to store after the whole log was pushed, and the index of all chunks."""

    parts: Sequence[Buffer]
    """The last chunk, unless it was returned before."""
    seek_table: bytes
    """The bytes to store last. Empty unless the log is compressed and not encrypted."""
    chunks: AnyChunks


class ChunkEncoder:
    """Takes a log in buffers of any size, and returns the bytes to store.

    Buffers must not change after they were pushed. Without compression and encryption they are
    returned as they are. Otherwise no more than one chunk waits for its end.
    """

    def __init__(self, chunk_bytes: int, compress: bool, cipher: SegmentCipher | None) -> None:
        self._chunk_bytes = chunk_bytes
        self._compress = compress
        self._cipher = cipher
        self._pending: list[memoryview] = []
        self._pending_bytes = 0
        self._original_bytes = 0
        self._stored: list[SeekEntry] = []

    @property
    def passes_through(self) -> bool:
        return not self._compress and self._cipher is None

    def completes_chunk(self, size_bytes: int) -> bool:
        """Tell if pushing so many bytes compresses or encrypts a chunk, which takes time."""
        return not self.passes_through and self._pending_bytes + size_bytes >= self._chunk_bytes

    def push(self, buffer: Buffer) -> list[Buffer]:
        """Return the stored form of all chunks that are complete now."""
        self._original_bytes += len(buffer)
        if self._original_bytes > MAX_LOG_BYTES:
            raise EncodingError(f"a segment's log cannot be larger than {MAX_LOG_BYTES} bytes")
        if self.passes_through:
            return [buffer] if len(buffer) else []
        encoded: list[Buffer] = []
        rest = memoryview(buffer)
        while self.completes_chunk(len(rest)):
            missing = self._chunk_bytes - self._pending_bytes
            self._keep(rest[:missing])
            encoded.append(self._encode(self._take_pending()))
            rest = rest[missing:]
        self._keep(rest)
        return encoded

    def finish(self) -> EncodedEnd:
        """Return the end of the stored log. A segment has records, so its log is never empty."""
        assert self._original_bytes, "the log of a segment is never empty"
        parts = [self._encode(self._take_pending())] if self._pending_bytes else []
        has_table = self._compress and self._cipher is None
        chunks = self._variable_chunks() if self._compress else self._fixed_chunks()
        if chunks.stored_bytes > MAX_LOG_BYTES:
            raise EncodingError(
                f"{chunks.stored_bytes} stored bytes are more than {MAX_LOG_BYTES}, which is as far"
                " as Kafka's readers can count: make smaller segments or larger chunks"
            )
        return EncodedEnd(
            parts=parts,
            seek_table=encode_seek_table(self._stored) if has_table else b"",
            chunks=chunks,
        )

    def _keep(self, part: memoryview) -> None:
        if len(part):
            self._pending.append(part)
            self._pending_bytes += len(part)

    def _take_pending(self) -> Buffer:
        """Return the waiting chunk. It is copied only if it came in several buffers."""
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        return pending[0] if len(pending) == 1 else b"".join(pending)

    def _encode(self, chunk: Buffer) -> Buffer:
        stored = compress_frame(chunk) if self._compress else chunk
        if self._cipher is not None:
            sealed = self._cipher.seal(stored)
            self._stored.append(SeekEntry(len(sealed), len(chunk), None))
            return sealed
        self._stored.append(SeekEntry(len(stored), len(chunk), frame_checksum(chunk)))
        return stored

    def _variable_chunks(self) -> VariableChunks:
        return VariableChunks(
            chunk_bytes=self._chunk_bytes,
            original_bytes=self._original_bytes,
            stored_sizes=tuple(entry.stored_bytes for entry in self._stored),
        )

    def _fixed_chunks(self) -> FixedChunks:
        added_bytes = SEAL_BYTES if self._cipher is not None else 0
        final_bytes = (self._original_bytes - 1) % self._chunk_bytes + 1
        return FixedChunks(
            chunk_bytes=self._chunk_bytes,
            original_bytes=self._original_bytes,
            stored_chunk_bytes=self._chunk_bytes + added_bytes,
            final_stored_bytes=final_bytes + added_bytes,
        )


def decode_chunk(
    stored: Buffer, chunk: int, manifest: Manifest, cipher: SegmentCipher | None, name: str
) -> Buffer:
    """Return the bytes of the log in one chunk of the object `name`, checked as far as possible.

    `stored` are the bytes of `manifest.chunks.stored_range(chunk)`. The caller checks the CRC of
    the records. A chunk that is neither compressed nor encrypted is returned as it is.
    """
    try:
        return _decode(stored, chunk, manifest, cipher)
    except ValueError as error:
        raise ChunkDamagedError(f"{name}, chunk {chunk}: {error}") from None


def _decode(stored: Buffer, chunk: int, manifest: Manifest, cipher: SegmentCipher | None) -> Buffer:
    stored_range = manifest.chunks.stored_range(chunk)
    original_range = manifest.chunks.original_range(chunk)
    stored_bytes = stored_range.end - stored_range.start
    original_bytes = original_range.end - original_range.start
    if len(stored) != stored_bytes:
        raise ValueError(f"{len(stored)} stored bytes instead of {stored_bytes}")
    if manifest.encryption is not None:
        assert cipher is not None, "an encrypted segment is read with its cipher"
        stored = cipher.unseal(stored)
    if manifest.compressed:
        return decompress_frame(stored, original_bytes)
    if len(stored) != original_bytes:
        raise ValueError(f"{len(stored)} bytes of the log instead of {original_bytes}")
    return stored
