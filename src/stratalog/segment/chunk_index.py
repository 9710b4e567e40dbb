"""Chunk indexes: the map from bytes of the log to stored bytes of the `.log` object.

A log is cut into chunks of one size; the last one may be shorter. Stored chunks also have one size,
again except for the last, unless they are compressed: then the index lists the size of each chunk.
"""

from base64 import b64encode
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol, TypeAlias

from stratalog.objects.store import Range
from stratalog.segment.chunk_sizes import pack_sizes, unpack_sizes
from stratalog.segment.json_object import INT32_LAST, JsonObject

MAX_LOG_BYTES = INT32_LAST
"""The size of a segment is a 32-bit number in Kafka."""


class ChunkIndex(Protocol):
    @property
    def chunk_bytes(self) -> int:
        """The bytes of the log in every chunk but the last."""

    @property
    def original_bytes(self) -> int:
        """The size of the whole log."""

    @property
    def count(self) -> int: ...

    @property
    def stored_bytes(self) -> int:
        """The size of all stored chunks. The object may be longer by a seek table."""

    def stored_range(self, chunk: int) -> Range:
        """Return the bytes of the object that hold this chunk."""

    def original_range(self, chunk: int) -> Range:
        """Return the bytes of the log that this chunk holds."""

    def to_json(self) -> dict[str, object]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedChunks:
    chunk_bytes: int
    original_bytes: int
    stored_chunk_bytes: int
    final_stored_bytes: int

    @property
    def count(self) -> int:
        return _count(self)

    @property
    def stored_bytes(self) -> int:
        return self._stored_start(self.count - 1) + self.final_stored_bytes if self.count else 0

    def stored_range(self, chunk: int) -> Range:
        is_final = _check(self, chunk) == self.count - 1
        start = self._stored_start(chunk)
        size_bytes = self.final_stored_bytes if is_final else self.stored_chunk_bytes
        return Range(start, start + size_bytes)

    def original_range(self, chunk: int) -> Range:
        return _original_range(self, chunk)

    def to_json(self) -> dict[str, object]:
        return {
            "type": "fixed",
            "originalChunkSize": self.chunk_bytes,
            "originalFileSize": self.original_bytes,
            "transformedChunkSize": self.stored_chunk_bytes,
            "finalTransformedChunkSize": self.final_stored_bytes,
        }

    def _stored_start(self, chunk: int) -> int:
        return chunk * self.stored_chunk_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableChunks:
    chunk_bytes: int
    original_bytes: int
    stored_sizes: tuple[int, ...]
    _ends: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ends", tuple(accumulate(self.stored_sizes)))

    @property
    def count(self) -> int:
        return len(self.stored_sizes)

    @property
    def stored_bytes(self) -> int:
        return self._ends[-1] if self._ends else 0

    def stored_range(self, chunk: int) -> Range:
        end = self._ends[_check(self, chunk)]
        return Range(end - self.stored_sizes[chunk], end)

    def original_range(self, chunk: int) -> Range:
        return _original_range(self, chunk)

    def to_json(self) -> dict[str, object]:
        return {
            "type": "variable",
            "originalChunkSize": self.chunk_bytes,
            "originalFileSize": self.original_bytes,
            "transformedChunks": b64encode(pack_sizes(self.stored_sizes)).decode(),
        }


AnyChunks: TypeAlias = FixedChunks | VariableChunks


def chunks_between(chunks: ChunkIndex, start: int, end: int) -> range:
    """Return the chunks that hold the bytes `[start, end)` of the log, up to the log's end."""
    end = min(end, chunks.original_bytes)
    if start >= end:
        return range(0)
    return range(start // chunks.chunk_bytes, (end - 1) // chunks.chunk_bytes + 1)


def parse_chunks(fields: JsonObject) -> AnyChunks:
    """Parse the chunk index of a manifest. A ValueError names the field that is wrong."""
    kind = fields.text("type")
    if kind == "fixed":
        return _parse_fixed(fields)
    if kind == "variable":
        return _parse_variable(fields)
    raise ValueError(f"a chunk index of type {kind!r} is unknown")


def _parse_fixed(fields: JsonObject) -> FixedChunks:
    chunks = FixedChunks(
        chunk_bytes=fields.integer("originalChunkSize", first=1),
        original_bytes=fields.integer("originalFileSize"),
        stored_chunk_bytes=fields.integer("transformedChunkSize"),
        final_stored_bytes=fields.integer("finalTransformedChunkSize"),
    )
    fields.finish()
    if chunks.count > 1 and not chunks.stored_chunk_bytes:
        raise ValueError("chunks of 0 stored bytes cannot hold anything")
    if chunks.count and not chunks.final_stored_bytes:
        raise ValueError("the final chunk has 0 stored bytes and cannot hold anything")
    return chunks


def _parse_variable(fields: JsonObject) -> VariableChunks:
    chunks = VariableChunks(
        chunk_bytes=fields.integer("originalChunkSize", first=1),
        original_bytes=fields.integer("originalFileSize"),
        stored_sizes=unpack_sizes(fields.base64("transformedChunks")),
    )
    fields.finish()
    if chunks.count != _count(chunks):
        raise ValueError(
            f"{chunks.original_bytes} bytes in chunks of {chunks.chunk_bytes} make"
            f" {_count(chunks)} chunks, but the sizes of {chunks.count} are listed"
        )
    if any(not 0 < size <= INT32_LAST for size in chunks.stored_sizes):
        raise ValueError(f"a stored chunk must have between 1 and {INT32_LAST} bytes")
    return chunks


def _count(chunks: ChunkIndex) -> int:
    return -(-chunks.original_bytes // chunks.chunk_bytes)


def _original_range(chunks: ChunkIndex, chunk: int) -> Range:
    start = _check(chunks, chunk) * chunks.chunk_bytes
    return Range(start, min(start + chunks.chunk_bytes, chunks.original_bytes))


def _check(chunks: ChunkIndex, chunk: int) -> int:
    assert 0 <= chunk < chunks.count, f"there is no chunk {chunk} among {chunks.count}"
    return chunk
