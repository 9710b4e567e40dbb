import pickle
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.unit.segment.layout_golden import (
    INDEXES,
    KEY_BASE,
    LOG,
    PUBLIC_PEM,
    SEGMENT,
    TOPIC,
    key_ring,
)

from stratalog.clock import SystemClock
from stratalog.objects import (
    Fault,
    FaultyStore,
    ObjectStore,
    StoreUnavailableError,
    open_store,
)
from stratalog.segment.chunk_encoding import Encoding
from stratalog.segment.errors import EncodingError, KeyMissingError, SegmentMismatchError
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.keys import INDEXES_SUFFIX, LOG_SUFFIX, MANIFEST_SUFFIX
from stratalog.segment.upload import UploadedLog, upload_indexes, upload_log

SEALED = Encoding(chunk_bytes=100_000, compress=True, encrypt=True)


@pytest.fixture
async def store() -> AsyncIterator[ObjectStore]:
    store = open_store("memory:", clock=SystemClock())
    yield store
    await store.close()


async def log_parts() -> AsyncIterator[bytes]:
    yield LOG


async def keys_in(store: ObjectStore) -> list[str]:
    return [info.key async for info in store.list("")]


async def test_what_crosses_processes_holds_no_secret(store: ObjectStore) -> None:
    log = await upload_log(store, KEY_BASE, log_parts(), SEALED, key_ring())
    assert pickle.loads(pickle.dumps(log)) == log
    assert UploadedLog.from_json(log.to_json()) == log
    assert log.encryption is not None
    assert log.encryption.key_id == "key1"


async def test_a_worker_needs_no_private_key(store: ObjectStore) -> None:
    worker = KeyRing.load({"key1": PUBLIC_PEM}, {}, "key1")
    log = await upload_log(store, KEY_BASE, log_parts(), SEALED, worker)
    with pytest.raises(KeyMissingError, match="'key1'"):
        await upload_indexes(store, KEY_BASE, INDEXES, log, SEGMENT, TOPIC, worker, event_ms=1)
    assert await keys_in(store) == [KEY_BASE + LOG_SUFFIX]
    await upload_indexes(store, KEY_BASE, INDEXES, log, SEGMENT, TOPIC, key_ring(), event_ms=1)
    assert len(await keys_in(store)) == 3


async def test_a_source_that_fails_leaves_nothing(store: ObjectStore) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield LOG[:200_000]
        raise EncodingError("the source is gone")

    for encoding in (SEALED, Encoding()):
        with pytest.raises(EncodingError, match="the source is gone"):
            await upload_log(store, KEY_BASE, failing(), encoding, key_ring())
    assert await keys_in(store) == []


async def test_encryption_without_a_key_uploads_nothing(store: ObjectStore) -> None:
    with pytest.raises(KeyMissingError):
        await upload_log(store, KEY_BASE, log_parts(), SEALED, KeyRing())
    assert await keys_in(store) == []


async def test_a_log_of_another_size_than_announced_gets_no_manifest(store: ObjectStore) -> None:
    log = await upload_log(store, KEY_BASE, log_parts(), Encoding(), KeyRing())
    segment = replace(SEGMENT, size_bytes=SEGMENT.size_bytes + 1)
    with pytest.raises(SegmentMismatchError, match=r"\.log: holds 756200 bytes"):
        await upload_indexes(store, KEY_BASE, INDEXES, log, segment, TOPIC, KeyRing(), event_ms=1)
    assert await keys_in(store) == [KEY_BASE + LOG_SUFFIX]


class Steps:
    """Records the writes, and makes one step fail."""

    def __init__(self, failing: str = "", fault: Fault = Fault.UNAVAILABLE) -> None:
        self.taken: list[str] = []
        self._failing = failing
        self._fault = fault

    def next(self, operation: str, key: str) -> Fault | None:
        self.taken.append(key.removeprefix(KEY_BASE))
        return self._fault if self._failing and key.endswith(self._failing) else None


async def upload(store: ObjectStore, steps: Steps) -> None:
    faulty = FaultyStore(store, steps, clock=SystemClock())
    log = await upload_log(faulty, KEY_BASE, log_parts(), Encoding(), KeyRing())
    await upload_indexes(faulty, KEY_BASE, INDEXES, log, SEGMENT, TOPIC, KeyRing(), event_ms=1)


async def test_the_manifest_is_put_last(store: ObjectStore) -> None:
    steps = Steps()
    await upload(store, steps)
    assert steps.taken == [LOG_SUFFIX, INDEXES_SUFFIX, MANIFEST_SUFFIX]


@pytest.mark.parametrize("suffix", [LOG_SUFFIX, INDEXES_SUFFIX, MANIFEST_SUFFIX])
async def test_whatever_step_fails_there_is_no_manifest(store: ObjectStore, suffix: str) -> None:
    steps = Steps(suffix)
    with pytest.raises(StoreUnavailableError):
        await upload(store, steps)
    assert steps.taken[-1] == suffix
    assert KEY_BASE + MANIFEST_SUFFIX not in await keys_in(store)
    await upload(store, Steps())
    assert len(await keys_in(store)) == 3


async def test_a_log_that_the_store_cut_short_is_noticed(store: ObjectStore) -> None:
    with pytest.raises(SegmentMismatchError, match=r"\.log: 378100 bytes were stored"):
        await upload(store, Steps(LOG_SUFFIX, Fault.TORN_PUT))


async def test_a_segment_without_aborted_transactions_says_so(store: ObjectStore) -> None:
    log = await upload_log(store, KEY_BASE, log_parts(), Encoding(), KeyRing())
    indexes = replace(INDEXES, transaction=b"")
    uploaded = await upload_indexes(
        store, KEY_BASE, indexes, log, SEGMENT, TOPIC, KeyRing(), event_ms=1
    )
    assert not uploaded.has_aborted
    assert '"transaction":null' in uploaded.manifest
    assert '"txnIdxEmpty":true' in uploaded.manifest
