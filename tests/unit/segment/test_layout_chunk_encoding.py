import os
from dataclasses import replace

import pytest
import zstandard

from stratalog.objects import Buffer
from stratalog.segment.chunk_encoding import MAX_CHUNK_BYTES, ChunkEncoder, Encoding, decode_chunk
from stratalog.segment.chunk_index import MAX_LOG_BYTES, VariableChunks
from stratalog.segment.cipher import SEAL_BYTES, SegmentCipher
from stratalog.segment.errors import ChunkDamagedError, EncodingError, IndexObjectDamagedError
from stratalog.segment.index_object import encode_indexes, read_index, read_indexes
from stratalog.segment.key_ring import EncryptionHeader
from stratalog.segment.manifest import IndexRange, Manifest
from stratalog.segment.model import IndexKind, SegmentIndexes
from stratalog.segment.zstd_frame import compress_frame

CIPHER = SegmentCipher(bytes(range(32)), b"additional")
HEADER = EncryptionHeader(key_id="k", sealed_key=b"sealed", aad=b"additional")
DATA = os.urandom(700) + bytes(550)
CHUNK_BYTES = 500


def encoded(
    compress: bool, cipher: SegmentCipher | None, data: bytes = DATA
) -> tuple[bytes, Manifest]:
    encoder = ChunkEncoder(CHUNK_BYTES, compress, cipher)
    stored = encoder.push(data)
    end = encoder.finish()
    manifest = Manifest(
        chunks=end.chunks,
        indexes={},
        compressed=compress,
        encryption=None if cipher is None else HEADER,
    )
    return b"".join([*stored, *end.parts, end.seek_table]), manifest


def chunk_of(stored: bytes, manifest: Manifest, chunk: int) -> bytes:
    place = manifest.chunks.stored_range(chunk)
    return stored[place.start : place.end]


def with_sizes(manifest: Manifest, *sizes: int) -> Manifest:
    assert isinstance(manifest.chunks, VariableChunks)
    return replace(manifest, chunks=replace(manifest.chunks, stored_sizes=sizes))


def decode(stored: Buffer, chunk: int, manifest: Manifest) -> Buffer:
    cipher = None if manifest.encryption is None else CIPHER
    return decode_chunk(stored, chunk, manifest, cipher, "a/b.log")


def test_plain_bytes_are_handed_on_without_being_copied() -> None:
    encoder = ChunkEncoder(CHUNK_BYTES, False, None)
    for piece in (b"abc" * 1000, bytearray(10), memoryview(b"xyz")):
        (out,) = encoder.push(piece)
        assert out is piece
    assert not encoder.finish().parts


def test_plain_chunks_are_decoded_without_being_copied() -> None:
    stored, manifest = encoded(False, None)
    piece = memoryview(stored)[:CHUNK_BYTES]
    assert decode(piece, 0, manifest) is piece


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("cipher", [None, CIPHER], ids=["clear", "sealed"])
@pytest.mark.parametrize("size_bytes", [1, 499, 500, 501, 1000, 1250])
def test_chunks_decode_to_what_was_encoded(
    compress: bool, cipher: SegmentCipher | None, size_bytes: int
) -> None:
    data = DATA[:size_bytes]
    stored, manifest = encoded(compress, cipher, data)
    assert manifest.chunks.count == -(-size_bytes // CHUNK_BYTES)
    decoded = [
        decode(chunk_of(stored, manifest, chunk), chunk, manifest)
        for chunk in range(manifest.chunks.count)
    ]
    assert b"".join(decoded) == data


def test_only_a_push_that_completes_a_chunk_takes_time() -> None:
    encoder = ChunkEncoder(CHUNK_BYTES, True, None)
    assert not encoder.completes_chunk(499)
    assert encoder.completes_chunk(500)
    assert encoder.push(bytes(499)) == []
    assert encoder.completes_chunk(1)
    assert len(encoder.push(bytes(1))) == 1
    assert not ChunkEncoder(CHUNK_BYTES, False, None).completes_chunk(10_000)


def test_encryption_adds_the_same_to_every_chunk() -> None:
    stored, manifest = encoded(False, CIPHER)
    assert len(stored) == len(DATA) + 3 * SEAL_BYTES == manifest.chunks.stored_bytes


def test_only_a_compressed_log_in_the_clear_ends_in_a_seek_table() -> None:
    for compress, cipher in ((False, None), (False, CIPHER), (True, CIPHER)):
        stored, manifest = encoded(compress, cipher)
        assert len(stored) == manifest.chunks.stored_bytes
    stored, manifest = encoded(True, None)
    assert len(stored) > manifest.chunks.stored_bytes


@pytest.mark.parametrize("compress", [False, True])
def test_any_damage_to_a_sealed_chunk_names_the_object_and_the_chunk(compress: bool) -> None:
    stored, manifest = encoded(compress, CIPHER)
    chunk = chunk_of(stored, manifest, 1)
    for position in (0, 11, 12, len(chunk) // 2, len(chunk) - 16, len(chunk) - 1):
        damaged = bytearray(chunk)
        damaged[position] ^= 1
        with pytest.raises(ChunkDamagedError, match=r"a/b\.log, chunk 1: the encrypted bytes"):
            decode(damaged, 1, manifest)


def test_a_sealed_chunk_does_not_open_with_another_key_or_other_additional_data() -> None:
    stored, manifest = encoded(False, CIPHER)
    for other in (SegmentCipher(bytes(32), b"additional"), SegmentCipher(bytes(range(32)), b"")):
        with pytest.raises(ChunkDamagedError, match="another key"):
            decode_chunk(chunk_of(stored, manifest, 0), 0, manifest, other, "a/b.log")


@pytest.mark.parametrize(
    "frame",
    [
        compress_frame(DATA[:499]),
        compress_frame(DATA[:501]),
        compress_frame(DATA[:CHUNK_BYTES])[:-1],
        compress_frame(DATA[:CHUNK_BYTES]) + b"x",
        compress_frame(DATA[:250]) + compress_frame(DATA[:250]),
        b"no zstd at all",
    ],
    ids=["short", "long", "cut", "followed", "two frames", "garbage"],
)
def test_a_frame_that_is_not_the_chunk_names_the_object_and_the_chunk(frame: bytes) -> None:
    _, manifest = encoded(True, None)
    with pytest.raises(ChunkDamagedError, match=r"a/b\.log, chunk 0: .*zstd"):
        decode(frame, 0, with_sizes(manifest, len(frame), 1, 1))


def test_a_frame_that_hides_its_size_is_refused() -> None:
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(DATA[:CHUNK_BYTES])
    _, manifest = encoded(True, None)
    with pytest.raises(ChunkDamagedError, match="does not say how large"):
        decode(frame, 0, with_sizes(manifest, len(frame), 1, 1))


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("cipher", [None, CIPHER], ids=["clear", "sealed"])
def test_a_chunk_of_another_length_names_the_object_and_the_chunk(
    compress: bool, cipher: SegmentCipher | None
) -> None:
    stored, manifest = encoded(compress, cipher)
    chunk = chunk_of(stored, manifest, 2)
    for wrong in (chunk[:-1], chunk + b"x", b""):
        with pytest.raises(ChunkDamagedError, match=r"a/b\.log, chunk 2: \d+ stored bytes instead"):
            decode(wrong, 2, manifest)


def test_a_variable_index_over_plain_chunks_is_read_and_checked() -> None:
    def manifest(*sizes: int) -> Manifest:
        chunks = VariableChunks(chunk_bytes=3, original_bytes=5, stored_sizes=sizes)
        return Manifest(chunks=chunks, indexes={}, compressed=False, encryption=None)

    assert decode(b"abc", 0, manifest(3, 2)) == b"abc"
    with pytest.raises(ChunkDamagedError, match="4 bytes of the log instead of 3"):
        decode(b"abcd", 0, manifest(4, 2))


@pytest.mark.parametrize("chunk_bytes", [1, MAX_CHUNK_BYTES])
def test_chunks_that_the_plugin_takes_are_taken(chunk_bytes: int) -> None:
    assert Encoding(chunk_bytes=chunk_bytes).chunk_bytes == chunk_bytes


@pytest.mark.parametrize("chunk_bytes", [0, MAX_CHUNK_BYTES + 1])
def test_chunks_that_the_plugin_refuses_are_refused(chunk_bytes: int) -> None:
    with pytest.raises(EncodingError, match=str(chunk_bytes)):
        Encoding(chunk_bytes=chunk_bytes)


class Long(bytes):
    """A buffer that says it is larger than memory."""

    def __len__(self) -> int:
        return MAX_LOG_BYTES


def test_a_log_that_kafka_could_not_count_is_refused() -> None:
    encoder = ChunkEncoder(CHUNK_BYTES, False, None)
    encoder.push(Long())
    with pytest.raises(EncodingError, match=str(MAX_LOG_BYTES)):
        encoder.push(b"x")


INDEXES = SegmentIndexes(
    offset=b"", timestamp=b"time", producer_snapshot=b"snapshot", leader_epoch=b"epochs"
)


def index_manifest(cipher: SegmentCipher | None) -> tuple[bytes, Manifest]:
    result = encode_indexes(INDEXES, cipher)
    _, manifest = encoded(False, cipher)
    return b"".join(result.parts), replace(manifest, indexes=result.ranges)


@pytest.mark.parametrize("cipher", [None, CIPHER], ids=["clear", "sealed"])
def test_an_empty_index_takes_no_bytes_and_an_absent_one_no_place(
    cipher: SegmentCipher | None,
) -> None:
    stored, manifest = index_manifest(cipher)
    assert manifest.indexes[IndexKind.OFFSET] == IndexRange(0, 0)
    assert IndexKind.TRANSACTION not in manifest.indexes
    assert read_indexes(manifest, stored, cipher, "a/b.indexes") == INDEXES
    assert read_index(manifest, IndexKind.TRANSACTION, b"", cipher, "a/b.indexes") == b""
    assert read_index(manifest, IndexKind.OFFSET, b"", cipher, "a/b.indexes") == b""


def test_a_sealed_index_that_was_changed_names_the_object_and_the_index() -> None:
    stored, manifest = index_manifest(CIPHER)
    for kind in (IndexKind.TIMESTAMP, IndexKind.LEADER_EPOCH):
        damaged = bytearray(stored)
        damaged[manifest.indexes[kind].end - 1] ^= 1
        with pytest.raises(IndexObjectDamagedError, match=rf"a/b\.indexes: the {kind} index"):
            read_indexes(manifest, damaged, CIPHER, "a/b.indexes")


@pytest.mark.parametrize("cipher", [None, CIPHER], ids=["clear", "sealed"])
def test_an_index_object_of_another_length_is_named(cipher: SegmentCipher | None) -> None:
    stored, manifest = index_manifest(cipher)
    for wrong in (stored[:-1], stored + b"x", b""):
        with pytest.raises(IndexObjectDamagedError, match=r"a/b\.indexes: has"):
            read_indexes(manifest, wrong, cipher, "a/b.indexes")
    with pytest.raises(IndexObjectDamagedError, match=r"the timestamp index takes 1 bytes"):
        read_index(manifest, IndexKind.TIMESTAMP, b"x", cipher, "a/b.indexes")
