import json
from collections.abc import AsyncIterator

import pytest
from tests.unit.segment.layout_golden import INDEXES, KEY_BASE, LOG, MODES, Mode, key_ring

from stratalog.batch.frames import iter_batches
from stratalog.checks.inspect_segment import (
    SegmentInspection,
    inspect_segment_object,
    is_segment_object,
)
from stratalog.clock import SystemClock
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.model import IndexKind

LOG_KEY, INDEXES_KEY = KEY_BASE + ".log", KEY_BASE + ".indexes"
MANIFEST_KEY = KEY_BASE + ".rsm-manifest"
PLAIN, SEALED = MODES[0], MODES[1]


@pytest.fixture
async def store() -> AsyncIterator[ObjectStore]:
    store = open_store("memory:", clock=SystemClock())
    yield store
    await store.close()


async def put(store: ObjectStore, mode: Mode) -> None:
    await store.put(LOG_KEY, [mode.log])
    await store.put(INDEXES_KEY, [mode.indexes])
    await store.put(MANIFEST_KEY, [mode.manifest_text.encode()])


async def inspect(
    store: ObjectStore, key: str, keys: KeyRing | None = None, *, records: bool = False
) -> SegmentInspection:
    return await inspect_segment_object(store, key, keys or key_ring(), records=records)


@pytest.mark.parametrize(
    ("key", "is_one"),
    [("a/b.log", True), ("x.indexes", True), ("x.rsm-manifest", True), ("blocks/x", False)],
)
def test_objects_of_segments_are_known_by_their_names(key: str, is_one: bool) -> None:
    assert is_segment_object(key) == is_one


@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_a_log_is_shown_batch_by_batch(store: ObjectStore, mode: Mode) -> None:
    await put(store, mode)
    inspection = await inspect(store, LOG_KEY, records=True)
    assert inspection.ok, inspection.errors
    expected = [(position, header) for position, header in iter_batches(LOG)]
    assert [(batch.byte_offset, batch.header) for batch in inspection.batches] == expected
    assert all(batch.crc_ok and batch.records is not None for batch in inspection.batches)


@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_indexes_are_shown_entry_by_entry(store: ObjectStore, mode: Mode) -> None:
    await put(store, mode)
    inspection = await inspect(store, INDEXES_KEY)
    assert inspection.ok, inspection.errors
    shown = {index.kind: index.entries for index in inspection.indexes}
    assert len(shown[IndexKind.OFFSET]) == len(INDEXES.offset) // 8
    assert shown[IndexKind.OFFSET][0] == {"relative_offset": 28, "position": 4702}
    assert len(shown[IndexKind.TIMESTAMP]) == len(INDEXES.timestamp) // 12
    assert shown[IndexKind.LEADER_EPOCH][-1]["epoch"] == 3
    assert [entry["producer_id"] for entry in shown[IndexKind.TRANSACTION]] == [4000, 4001]
    assert shown[IndexKind.PRODUCER_SNAPSHOT]


async def test_a_manifest_is_shown_without_any_key(store: ObjectStore) -> None:
    await put(store, SEALED)
    inspection = await inspect(store, MANIFEST_KEY, KeyRing())
    assert inspection.ok
    told = json.loads(json.dumps(inspection.as_dict()))["manifest"]
    assert (told["encrypted_for"], told["compressed"], told["log_bytes"]) == (
        "key1",
        False,
        len(LOG),
    )
    assert told["segment"]["startOffset"] == 5000


async def test_what_is_encrypted_needs_the_key(store: ObjectStore) -> None:
    await put(store, SEALED)
    for key in (LOG_KEY, INDEXES_KEY):
        inspection = await inspect(store, key, KeyRing())
        assert not inspection.ok
        assert "has no private key here" in inspection.errors[0]


async def test_a_plain_log_needs_no_manifest_and_indexes_do(store: ObjectStore) -> None:
    await put(store, PLAIN)
    await store.delete([MANIFEST_KEY])
    assert (await inspect(store, LOG_KEY)).ok
    inspection = await inspect(store, INDEXES_KEY)
    assert "its parts cannot be located" in inspection.errors[0]
    with pytest.raises(ObjectNotFoundError):
        await inspect(store, MANIFEST_KEY)


@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_a_damaged_log_is_shown_as_far_as_it_goes(store: ObjectStore, mode: Mode) -> None:
    await put(store, mode)
    damaged = bytearray(mode.log)
    damaged[len(damaged) // 2] ^= 1
    await store.put(LOG_KEY, [damaged])
    inspection = await inspect(store, LOG_KEY)
    assert not inspection.ok
    assert 100 < len(inspection.batches) <= 400


async def test_one_damaged_index_does_not_hide_the_others(store: ObjectStore) -> None:
    await put(store, SEALED)
    damaged = bytearray(SEALED.indexes)
    damaged[20] ^= 1
    await store.put(INDEXES_KEY, [damaged])
    inspection = await inspect(store, INDEXES_KEY)
    errors = {index.kind: index.error for index in inspection.indexes}
    assert errors.pop(IndexKind.OFFSET) is not None
    assert set(errors.values()) == {None}
    await store.put(INDEXES_KEY, [SEALED.indexes, b"x"])
    inspection = await inspect(store, INDEXES_KEY)
    assert "its manifest says" in inspection.errors[0]


async def test_a_damaged_manifest_is_told(store: ObjectStore) -> None:
    await put(store, PLAIN)
    await store.put(MANIFEST_KEY, [b"{}"])
    for key in (LOG_KEY, INDEXES_KEY, MANIFEST_KEY):
        inspection = await inspect(store, key)
        assert "manifest.version is missing" in inspection.errors[0]
