"""The plugin's objects are read to the byte, and ours equal the ones it would have written."""

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.unit.segment.layout_golden import (
    CHUNK_BYTES,
    EVENT_MS,
    INDEXES,
    KEY_BASE,
    LOG,
    MODES,
    PLAIN,
    SEGMENT,
    TOPIC,
    Mode,
    Recorded,
    key_ring,
)

from stratalog.clock import SystemClock
from stratalog.objects import Buffer, ObjectStore, open_store
from stratalog.segment.chunk_encoding import Encoding, decode_chunk
from stratalog.segment.cipher import SegmentCipher
from stratalog.segment.index_object import read_index, read_indexes
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.keys import INDEXES_SUFFIX, LOG_SUFFIX, MANIFEST_SUFFIX
from stratalog.segment.model import IndexKind
from stratalog.segment.seek_table import decode_seek_table
from stratalog.segment.upload import UploadedLog, upload_indexes, upload_log


@pytest.fixture(params=MODES, ids=str)
def mode(request: pytest.FixtureRequest) -> Mode:
    assert isinstance(request.param, Mode)
    return request.param


@pytest.fixture
async def store() -> AsyncIterator[ObjectStore]:
    store = open_store("memory:", clock=SystemClock())
    yield store
    await store.close()


def cipher_of(mode: Mode) -> SegmentCipher | None:
    header = mode.manifest.encryption
    return None if header is None else key_ring().open(header, KEY_BASE)


def decoded_chunks(mode: Mode, stored: bytes) -> Iterator[Buffer]:
    manifest, cipher = mode.manifest, cipher_of(mode)
    for chunk in range(manifest.chunks.count):
        place = manifest.chunks.stored_range(chunk)
        yield decode_chunk(stored[place.start : place.end], chunk, manifest, cipher, KEY_BASE)


def test_the_log_of_the_plugin_decodes_to_the_file_that_it_read(mode: Mode) -> None:
    assert b"".join(decoded_chunks(mode, mode.log)) == LOG
    assert mode.manifest.chunks.stored_bytes == len(mode.log)
    assert mode.manifest.chunks.original_bytes == len(LOG)


def test_the_indexes_of_the_plugin_decode_to_the_files_that_it_read(mode: Mode) -> None:
    assert read_indexes(mode.manifest, mode.indexes, cipher_of(mode), KEY_BASE) == INDEXES


def test_one_index_is_read_from_its_own_bytes(mode: Mode) -> None:
    place = mode.manifest.indexes[IndexKind.TIMESTAMP]
    stored = mode.indexes[place.position : place.end]
    index = read_index(mode.manifest, IndexKind.TIMESTAMP, stored, cipher_of(mode), KEY_BASE)
    assert index == INDEXES.timestamp


def test_a_manifest_of_the_plugin_is_written_as_it_was_read(mode: Mode) -> None:
    assert mode.manifest.to_json() == mode.manifest_text


async def pieces(size_bytes: int) -> AsyncIterator[bytes]:
    for start in range(0, len(LOG), size_bytes):
        yield LOG[start : start + size_bytes]


@pytest.mark.parametrize("piece_bytes", [10_000, CHUNK_BYTES, 300_000, len(LOG)])
async def test_our_objects_are_those_of_the_plugin_byte_for_byte(
    mode: Mode, store: ObjectStore, piece_bytes: int
) -> None:
    recorded = Recorded(mode) if mode.encrypt else None
    keys = KeyRing() if recorded is None else key_ring(recorded)
    encoding = Encoding(chunk_bytes=CHUNK_BYTES, compress=mode.compress, encrypt=mode.encrypt)

    log = await upload_log(store, KEY_BASE, pieces(piece_bytes), encoding, keys)
    log = UploadedLog.from_json(log.to_json())
    uploaded = await upload_indexes(
        store, KEY_BASE, INDEXES, log, SEGMENT, TOPIC, keys, event_ms=EVENT_MS
    )

    stored = {
        suffix: bytes((await store.get(KEY_BASE + suffix)).data)
        for suffix in (LOG_SUFFIX, INDEXES_SUFFIX, MANIFEST_SUFFIX)
    }
    # The golden segment was described to the plugin as one without aborted transactions.
    described = uploaded.manifest.replace('"txnIdxEmpty":false', '"txnIdxEmpty":true')
    assert described == mode.manifest_text
    assert stored[MANIFEST_SUFFIX].decode() == uploaded.manifest
    assert stored[INDEXES_SUFFIX] == mode.indexes
    assert stored[LOG_SUFFIX][: len(mode.log)] == mode.log
    seek_table = stored[LOG_SUFFIX][len(mode.log) :]
    assert bool(seek_table) == (mode.compress and not mode.encrypt)
    if seek_table:
        entries = decode_seek_table(seek_table, KEY_BASE)
        assert sum(entry.original_bytes for entry in entries) == len(LOG)
    assert uploaded.has_aborted
    assert uploaded.stored_bytes == sum(len(data) for data in stored.values())
    assert recorded is None or recorded.used_up


async def test_a_plain_log_is_the_file_itself(store: ObjectStore) -> None:
    assert PLAIN.log == LOG
    encoding = Encoding(chunk_bytes=1000)
    log = await upload_log(store, KEY_BASE, pieces(777), encoding, KeyRing())
    assert bytes((await store.get(KEY_BASE + LOG_SUFFIX)).data) == LOG
    assert log.chunks.stored_bytes == log.stored_bytes == len(LOG)
