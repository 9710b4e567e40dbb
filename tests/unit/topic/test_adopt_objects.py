"""Objects of a topic that is adopted: looked for, compared with their manifests, refused."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.golden_topic import ADDED, finished, lay_out
from tests.unit.segment.layout_golden import (
    KEY_BASE,
    PLAIN,
    PREFIX,
    TOPIC,
    TOPIC_ID,
    Mode,
    key_ring,
)
from tests.unit.topic.tiered_kafka import Kafka, bases

from stratalog.ids import Offset, PartitionIndex
from stratalog.objects.store import ObjectStore
from stratalog.segment.custom_metadata import CustomMetadata, encode_custom_metadata
from stratalog.segment.errors import (
    DataKeyError,
    IndexDamagedError,
    KeyMissingError,
    ManifestDamagedError,
    SegmentMismatchError,
)
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.keys import (
    INDEXES_SUFFIX,
    LOG_SUFFIX,
    MANIFEST_SUFFIX,
    segment_key_base,
)
from stratalog.segment.manifest import parse_manifest
from stratalog.segment.model import IndexKind
from stratalog.settings import RemoteSettings, Settings, StorageSettings
from stratalog.topic.adopted_objects import AdoptedObjects, own_realms, place_of
from stratalog.topic.errors import OwnRealmError


@pytest.mark.parametrize("suffix", [LOG_SUFFIX, INDEXES_SUFFIX, MANIFEST_SUFFIX])
async def test_a_missing_object_is_named(kafka: Kafka, store: ObjectStore, suffix: str) -> None:
    await kafka.tier(0, 9)
    key = (await kafka.plan()).to_adopt.segments[0].segment.key_base + suffix
    await kafka.tier(10, 19)
    await store.delete([key])
    with pytest.raises(SegmentMismatchError, match=key):
        await kafka.plan()


@pytest.mark.parametrize("suffix", [LOG_SUFFIX, INDEXES_SUFFIX])
@pytest.mark.parametrize("change", [-1, 1])
async def test_an_object_of_another_size_is_named(
    kafka: Kafka, store: ObjectStore, suffix: str, change: int
) -> None:
    await kafka.tier(0, 9)
    key = (await kafka.plan()).to_adopt.segments[0].segment.key_base + suffix
    data = bytes((await store.get(key)).data)
    await store.put(key, [data[:change] if change < 0 else data + b"."])
    with pytest.raises(SegmentMismatchError, match=rf"{key} has {len(data) + change} bytes"):
        await kafka.plan()


@pytest.mark.parametrize(
    ("mode", "extra", "fits"),
    [
        (Mode(compress=True, encrypt=False), 20, True),
        (Mode(compress=True, encrypt=True), 20, False),
        (Mode(compress=False, encrypt=False), 20, False),
        (Mode(compress=True, encrypt=False), -1, False),
    ],
)
async def test_only_compressed_plain_logs_may_have_a_seek_table_at_their_end(
    store: ObjectStore, tmp_path: Path, mode: Mode, extra: int, fits: bool
) -> None:
    lay_out(tmp_path / "tiered", mode)
    key = KEY_BASE + LOG_SUFFIX
    log = bytes((await store.get(key)).data)
    await store.put(key, [log + bytes(extra) if extra > 0 else log[:extra]])
    objects = AdoptedObjects(store, key_prefix=PREFIX, keys=key_ring())
    if fits:
        assert (await objects.check(ADDED)).manifest.compressed
    else:
        with pytest.raises(SegmentMismatchError, match="its manifest says"):
            await objects.check(ADDED)


async def test_a_manifest_of_another_segment_or_of_none_is_refused(
    kafka: Kafka, store: ObjectStore
) -> None:
    added = await kafka.tier(0, 9)
    kafka.records[0] = replace(added, size_bytes=101)
    with pytest.raises(SegmentMismatchError, match="a log of 100 bytes, Kafka's metadata of 101"):
        await kafka.plan()
    kafka.records[0] = added
    key = (await kafka.plan()).to_adopt.segments[0].segment.key_base + MANIFEST_SUFFIX
    for text, error in ((b"{}", ManifestDamagedError), (b"\xff", SegmentMismatchError)):
        await store.put(key, [text])
        with pytest.raises(error, match=key):
            await kafka.plan()


@pytest.mark.parametrize("kind", [IndexKind.PRODUCER_SNAPSHOT, IndexKind.LEADER_EPOCH])
async def test_a_damaged_snapshot_or_checkpoint_is_named_with_its_object(
    kafka: Kafka, store: ObjectStore, kind: IndexKind
) -> None:
    await kafka.tier(0, 9)
    [adopted] = (await kafka.plan()).to_adopt.segments
    key = adopted.segment.key_base + INDEXES_SUFFIX
    data = bytearray((await store.get(key)).data)
    data[parse_manifest(adopted.uploaded.manifest, "").indexes[kind].position] ^= 0xFF
    await store.put(key, [data])
    with pytest.raises(IndexDamagedError, match=f"object {re.escape(key)}: "):
        await kafka.plan()


async def test_the_keys_of_encrypted_segments_must_be_there(kafka: Kafka) -> None:
    kafka.keys = key_ring()
    await kafka.tier(0, 9)
    assert bases(await kafka.plan(keys=key_ring())) == [(0, 9)]
    with pytest.raises(KeyMissingError, match="key1"):
        await kafka.plan()


async def test_a_damaged_data_key_is_named(store: ObjectStore, tmp_path: Path) -> None:
    lay_out(tmp_path / "tiered", Mode(compress=False, encrypt=True))
    key = KEY_BASE + MANIFEST_SUFFIX
    text = bytes((await store.get(key)).data).replace(b'"key1:', b'"key1:AAAA', 1)
    await store.put(key, [text])
    objects = AdoptedObjects(store, key_prefix=PREFIX, keys=key_ring())
    with pytest.raises(DataKeyError, match=KEY_BASE):
        await objects.check(ADDED)


async def test_the_transaction_index_of_the_manifest_is_believed(
    store: ObjectStore, tmp_path: Path
) -> None:
    lay_out(tmp_path / "tiered", PLAIN)
    objects = AdoptedObjects(store, key_prefix=PREFIX, keys=KeyRing())
    assert (await objects.check(ADDED)).adopted.uploaded.has_aborted


async def test_objects_are_found_where_the_plugin_noted_that_it_put_them(kafka: Kafka) -> None:
    old = encode_custom_metadata(CustomMetadata(object_prefix="old/"))
    await kafka.tier(0, 9, prefix="old/", custom_metadata=old)
    added = await kafka.tier(10, 19)
    whole = segment_key_base("", TOPIC, TOPIC_ID, PartitionIndex(0), Offset(10), added.segment_id)
    noted = encode_custom_metadata(CustomMetadata(object_key=whole, remote_bytes=5))
    kafka.records[-1] = finished(added, custom_metadata=noted)
    [one, two] = (await kafka.plan()).to_adopt.segments
    assert one.segment.key_base.startswith("old/")
    assert (two.segment.key_base, two.uploaded.custom_metadata) == (PREFIX + whole, noted)


async def test_a_manifest_below_todays_prefix_is_found_too(
    kafka: Kafka, store: ObjectStore
) -> None:
    old = encode_custom_metadata(CustomMetadata(object_prefix="old/"))
    await kafka.tier(0, 9, prefix="old/", custom_metadata=old)
    [one] = (await kafka.plan()).to_adopt.segments
    noted = one.segment.key_base + MANIFEST_SUFFIX
    await store.copy(noted, PREFIX + noted.removeprefix("old/"))
    await store.delete([noted])
    assert (await kafka.plan()).to_adopt.segments[0].segment.key_base == one.segment.key_base


@pytest.mark.parametrize(
    ("objects", "remote", "refused"),
    [
        ("{0}", RemoteSettings(prefix=PREFIX), True),
        ("{0}/", RemoteSettings(prefix=PREFIX), True),
        ("{0}", RemoteSettings(prefix=""), True),
        ("{0}/../tiered", RemoteSettings(prefix=PREFIX), True),
        ("{0}", RemoteSettings(prefix="pfx/topic2/"), False),
        ("{0}-2", RemoteSettings(prefix=""), False),
        ("{0}-2", RemoteSettings(objects="file:{0}/pfx", prefix=""), True),
        ("{0}-2", RemoteSettings(objects="file:{0}", prefix="segments/"), False),
    ],
)
async def test_objects_where_the_cluster_sweeps_are_refused(
    store: ObjectStore, tmp_path: Path, objects: str, remote: RemoteSettings, refused: bool
) -> None:
    lay_out(tmp_path / "tiered", PLAIN)
    at = str(tmp_path / "tiered")
    if remote.objects is not None:
        remote = replace(remote, objects=remote.objects.format(at))
    storage = StorageSettings(objects=f"file:{objects.format(at)}")
    realms = own_realms(Settings(storage=storage, remote=remote))
    foreign = AdoptedObjects(store, key_prefix=PREFIX, keys=KeyRing(), realms=realms)
    if refused:
        with pytest.raises(OwnRealmError, match="where this cluster deletes"):
            await foreign.check(ADDED)
    else:
        await foreign.check(ADDED)


def test_a_place_has_one_spelling() -> None:
    assert place_of("s3://bucket/a/", "b") == place_of("s3://bucket/a", "b") == "s3://bucket/a/b"
    assert place_of("file:/x/y/../z", "b") == place_of("file:///x/z", "b") == "file:///x/z/b"
