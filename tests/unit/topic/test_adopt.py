"""What is adopted of a topic, from records and objects made for the occasion."""

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.golden_topic import ADDED, PARTITION, finished, lay_out, put_segment
from tests.unit.segment.layout_golden import (
    KEY_BASE,
    PLAIN,
    PREFIX,
    TOPIC,
    TOPIC_ID,
    Mode,
    key_ring,
)

from stratalog.clock import SystemClock
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.model import EpochStart, SegmentState, SegmentToAdd
from stratalog.control.topics.errors import MigrationRefusedError, TopicExistsError
from stratalog.control.topics.migration_state import MigrationState, migration_state
from stratalog.ids import LeaderEpoch, Offset, PartitionIndex, ProducerId, SegmentId, TopicId
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.segment.custom_metadata import CustomMetadata, encode_custom_metadata
from stratalog.segment.epoch_checkpoint import encode_checkpoint
from stratalog.segment.errors import (
    DataKeyError,
    IndexDamagedError,
    KeyMissingError,
    LineageGapError,
    ManifestDamagedError,
    SegmentMismatchError,
)
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.keys import INDEXES_SUFFIX, LOG_SUFFIX, MANIFEST_SUFFIX, segment_key_base
from stratalog.segment.manifest import parse_manifest
from stratalog.segment.metadata_fold import FoldedPartition, FoldedTopics, fold_records
from stratalog.segment.model import IndexKind, SegmentIndexes
from stratalog.segment.producer_snapshot import ProducerEntry, encode_snapshot
from stratalog.segment.remote_log_metadata import (
    PartitionDeleted,
    PartitionDeleteState,
    RemoteLogRecord,
    SegmentAdded,
    encode_record,
)
from stratalog.settings import RemoteSettings, Settings, StorageSettings
from stratalog.topic.adopt import (
    AdoptedAlreadyError,
    AdoptionPlan,
    OpenTransactionsError,
    PartitionPlan,
    UnsealedSourceError,
    check_free,
    open_for_writes,
    plan_adoption,
)
from stratalog.topic.adoption_source import (
    NotInMetadataError,
    SourcePartition,
    SourceTopic,
    topic_in_metadata,
    usable_configs,
)
from stratalog.topic.foreign_objects import ForeignObjects, OwnRealmError, own_realms, place_of

OTHER_ID = TopicId(uuid4())


def epoch(number: int, start: int) -> EpochStart:
    return EpochStart(LeaderEpoch(number), Offset(start))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ObjectStore]:
    (tmp_path / "tiered").mkdir()
    store = open_store(f"file:{tmp_path / 'tiered'}", {}, clock=SystemClock())
    yield store
    await store.close()


class Kafka:
    """A partition of a topic as Kafka and its plugin leave it in a store."""

    def __init__(self, store: ObjectStore, *, prefix: str = PREFIX) -> None:
        self._store = store
        self._prefix = prefix
        self.records: list[RemoteLogRecord] = []
        self.keys: KeyRing | None = None

    async def tier(
        self,
        base: int,
        last: int,
        epochs: Sequence[EpochStart] = (epoch(0, 0),),
        *,
        producers: Sequence[ProducerEntry] = (),
        partition: int = 0,
        prefix: str | None = None,
        finish: bool = True,
        **changes: Any,
    ) -> SegmentAdded:
        """Upload a segment whose leader knows of these epochs."""
        segment_id = SegmentId(uuid4())
        where = PartitionIndex(partition)
        key_base = segment_key_base(
            self._prefix if prefix is None else prefix,
            TOPIC,
            TOPIC_ID,
            where,
            Offset(base),
            segment_id,
        )
        segment = SegmentToAdd(
            segment_id=segment_id,
            topic_id=TOPIC_ID,
            partition=where,
            base_offset=Offset(base),
            last_offset=Offset(last),
            size_bytes=100,
            max_timestamp=1,
            leader_epochs=_own(epochs, base, last),
            key_base=key_base,
        )
        indexes = SegmentIndexes(
            offset=b"",
            timestamp=b"",
            producer_snapshot=encode_snapshot(producers),
            leader_epoch=encode_checkpoint(epochs),
        )
        added = await put_segment(self._store, segment, b"x" * 100, indexes, keys=self.keys)
        self.records.append(added)
        if finish:
            self.records.append(finished(added, **changes))
        return added

    def folded(self) -> FoldedTopics:
        return fold_records(map(encode_record, self.records))

    def partition(self, index: int = 0) -> FoldedPartition:
        found = self.folded().partitions
        [one] = [each for key, each in found.items() if key.partition == index]
        return one

    async def plan(self, *, keys: KeyRing | None = None, **offsets: Any) -> PartitionPlan:
        """Of partition 0, with what a live source would say."""
        return (await self.plan_topic(keys=keys, **offsets)).partitions[0]

    async def plan_topic(self, *, keys: KeyRing | None = None, **offsets: Any) -> AdoptionPlan:
        metadata = self.partition() if self.records else None
        zero = SourcePartition(partition=PartitionIndex(0), metadata=metadata, **offsets)
        objects = ForeignObjects(self._store, key_prefix=self._prefix, keys=keys or KeyRing())
        return await plan_adoption(
            SourceTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=[zero]), objects
        )


def _own(epochs: Sequence[EpochStart], base: int, last: int) -> list[EpochStart]:
    """Those with records in the segment, the first one's start moved to its base."""
    started = [one for one in epochs if one.start_offset <= last]
    before = [one for one in started if one.start_offset <= base][-1:]
    inside = [one for one in started if one.start_offset > base]
    return [*(epoch(one.epoch, base) for one in before), *inside]


@pytest.fixture
def kafka(store: ObjectStore) -> Kafka:
    return Kafka(store)


def bases(plan: PartitionPlan) -> list[tuple[int, int]]:
    segments = [one.segment for one in plan.to_adopt.segments]
    return [(one.base_offset, one.last_offset) for one in segments]


# Which segments.


async def test_all_segments_are_adopted_with_their_manifests_and_places(
    kafka: Kafka, store: ObjectStore
) -> None:
    first, second = await kafka.tier(0, 9), await kafka.tier(10, 29)
    plan = await kafka.plan()
    assert bases(plan) == [(0, 9), (10, 29)]
    [one, two] = plan.to_adopt.segments
    assert (one.segment.segment_id, two.segment.segment_id) == (
        first.segment_id,
        second.segment_id,
    )
    assert one.segment.store_url == store.url
    manifest = await store.get(one.segment.key_base + MANIFEST_SUFFIX)
    assert one.uploaded.manifest == bytes(manifest.data).decode()
    heads = [await store.head(one.segment.key_base + s) for s in (LOG_SUFFIX, INDEXES_SUFFIX)]
    sizes = sum(head.size_bytes for head in heads) + len(manifest.data)
    assert one.uploaded.stored_bytes == sizes
    assert not one.uploaded.has_aborted
    assert (plan.to_adopt.log_start, plan.end_offset, plan.lost_records) == (0, 30, 0)
    assert (plan.size_bytes, plan.stored_bytes) == (200, sizes + two.uploaded.stored_bytes)


async def test_progress_is_told_segment_by_segment(kafka: Kafka, store: ObjectStore) -> None:
    for base in (0, 10, 20):
        await kafka.tier(base, base + 9)
    told: list[tuple[str, int, int]] = []
    zero = SourcePartition(partition=PartitionIndex(0), metadata=kafka.partition())
    await plan_adoption(
        SourceTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=[zero]),
        ForeignObjects(store, key_prefix=PREFIX, keys=KeyRing()),
        lambda *one: told.append(one),
    )
    assert told == [("segments", number, 3) for number in (1, 2, 3)]


async def test_segments_of_a_deposed_leader_are_left_behind(kafka: Kafka) -> None:
    await kafka.tier(0, 9)
    await kafka.tier(10, 49, [epoch(0, 0), epoch(1, 5)])
    await kafka.tier(10, 19, [epoch(0, 0), epoch(2, 10)])
    plan = await kafka.plan()
    assert bases(plan) == [(0, 9), (10, 19)]
    assert plan.to_adopt.epochs == [epoch(0, 0), epoch(2, 10)]


async def test_segments_may_begin_inside_their_predecessor(kafka: Kafka) -> None:
    await kafka.tier(0, 19)
    await kafka.tier(10, 29, [epoch(0, 0), epoch(1, 25)])
    assert bases(await kafka.plan()) == [(0, 19), (10, 29)]


async def test_a_gap_is_refused_unless_the_log_begins_behind_it(kafka: Kafka) -> None:
    await kafka.tier(0, 9)
    await kafka.tier(20, 29)
    with pytest.raises(LineageGapError, match="10 to 19"):
        await kafka.plan()
    with pytest.raises(LineageGapError):
        await kafka.plan(log_start=9)
    assert bases(await kafka.plan(log_start=20)) == [(20, 29)]


async def test_what_lies_wholly_below_the_start_is_not_adopted(kafka: Kafka) -> None:
    for base in (0, 10, 20):
        await kafka.tier(base, base + 9)
    for log_start, expected in ((9, 3), (10, 2), (25, 1)):
        plan = await kafka.plan(log_start=log_start)
        assert len(plan.to_adopt.segments) == expected
        assert (plan.to_adopt.log_start, plan.lost_records) == (log_start, 0)


async def test_a_partition_whose_records_all_expired_begins_where_it_ended(kafka: Kafka) -> None:
    await kafka.tier(0, 9, [epoch(4, 0)])
    plan = await kafka.plan(log_start=10, log_end=10)
    assert (bases(plan), plan.to_adopt.log_start, plan.lost_records) == ([], 10, 0)
    assert plan.to_adopt.epochs == [epoch(4, 10)]


def expired(*segments: SegmentAdded) -> list[RemoteLogRecord]:
    """The records of a deletion that was brought to its end."""
    states = (SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED)
    return [finished(segment, state=state) for segment in segments for state in states]


async def test_a_partition_whose_segments_are_all_gone_begins_where_they_ended(
    kafka: Kafka,
) -> None:
    """A dump tells of no offsets but theirs, and consumers have committed such."""
    first = await kafka.tier(0, 9, [epoch(4, 0)])
    second = await kafka.tier(10, 29, [epoch(4, 0), epoch(7, 10)])
    kafka.records += expired(first, second)
    for log_start in (None, 30):
        plan = await kafka.plan(log_start=log_start)
        assert (bases(plan), plan.to_adopt.log_start, plan.lost_records) == ([], 30, 0)
        assert plan.to_adopt.epochs == [epoch(7, 30)]


async def test_an_upload_that_was_given_up_before_others_expired_loses_nothing(
    kafka: Kafka,
) -> None:
    await kafka.tier(5, 9, finish=False)
    kafka.records += expired(await kafka.tier(0, 29))
    plan = await kafka.plan()
    assert (bases(plan), plan.to_adopt.log_start, plan.lost_records) == ([], 30, 0)
    await kafka.tier(30, 34, finish=False)
    plan = await kafka.plan()
    assert (bases(plan), plan.to_adopt.log_start, plan.lost_records) == ([], 35, 5)


async def test_the_epochs_of_segments_that_are_gone_are_kept_in_mind(kafka: Kafka) -> None:
    """The segment of a leader that was deposed was removed by the next one."""
    await kafka.tier(0, 9)
    kafka.records += expired(await kafka.tier(10, 19, [epoch(0, 0), epoch(9, 10)]))
    assert (await kafka.plan()).to_adopt.epochs == [epoch(0, 0), epoch(9, 10)]


@pytest.mark.parametrize(("log_start", "lost"), [(29, 0), (30, 0), (31, 1), (300, 270)])
async def test_a_start_behind_everything_that_was_tiered_is_refused(
    kafka: Kafka, log_start: int, lost: int
) -> None:
    for base in (0, 10, 20):
        await kafka.tier(base, base + 9)
    plan = await kafka.plan_topic(log_start=log_start)
    assert plan.partitions[0].lost_records == lost
    assert plan.partitions[0].to_adopt.log_start == log_start
    if lost:
        said = f"would begin at offset {log_start}, .* tiered is 29. Correct --log-start"
        with pytest.raises(UnsealedSourceError, match=said):
            plan.check_sealed()
    else:
        plan.check_sealed()


async def test_a_running_source_knows_where_it_begins(kafka: Kafka) -> None:
    """Records may have been deleted before any of them was tiered."""
    await kafka.tier(0, 9)
    plan = await kafka.plan_topic(log_start=300, log_end=300)
    plan.check_sealed()
    assert plan.partitions[0].to_adopt.log_start == 300


async def test_a_segment_beyond_the_end_of_the_log_does_not_count(kafka: Kafka) -> None:
    await kafka.tier(0, 9)
    await kafka.tier(10, 19)
    assert bases(await kafka.plan(log_start=0, log_end=20)) == [(0, 9), (10, 19)]
    plan = await kafka.plan(log_start=0, log_end=19)
    assert (bases(plan), plan.lost_records) == ([(0, 9)], 9)


async def test_the_epochs_of_a_segment_beyond_the_end_do_not_count(kafka: Kafka) -> None:
    await kafka.tier(0, 9)
    await kafka.tier(10, 19, [epoch(0, 0), epoch(5, 12)])
    plan = await kafka.plan(log_start=0, log_end=19)
    assert plan.to_adopt.epochs == [epoch(0, 0), epoch(5, 10)]


async def test_a_checkpoint_that_contradicts_the_metadata_is_refused(kafka: Kafka) -> None:
    await kafka.tier(0, 9)
    added = await kafka.tier(10, 19, [epoch(0, 0), epoch(2, 10)])
    kafka.records[2] = replace(added, leader_epochs=(epoch(3, 10),))
    with pytest.raises(SegmentMismatchError, match="do not tell of the same epochs"):
        await kafka.plan()


async def test_of_two_segments_with_the_same_end_one_is_taken(kafka: Kafka) -> None:
    for base, last in ((0, 19), (10, 29), (15, 29)):
        await kafka.tier(base, last)
    assert bases(await kafka.plan()) == [(0, 19), (15, 29)]


# Epochs and producers.


async def test_the_highest_epoch_that_is_known_is_kept_in_mind(kafka: Kafka) -> None:
    await kafka.tier(0, 9, [epoch(0, 0), epoch(3, 5)])
    assert (await kafka.plan()).to_adopt.epochs == [epoch(0, 0), epoch(3, 5)]
    assert (await kafka.plan(leader_epoch=3)).to_adopt.epochs[-1] == epoch(3, 5)
    assert (await kafka.plan(leader_epoch=4)).to_adopt.epochs[-1] == epoch(4, 10)
    await kafka.tier(10, 19, [epoch(0, 0), epoch(7, 10)], finish=False)
    assert (await kafka.plan()).to_adopt.epochs[-1] == epoch(7, 10)


async def test_producers_come_from_the_last_segment(kafka: Kafka) -> None:
    old = ProducerEntry(ProducerId(1), 0, 5, Offset(5), 0, 99)
    new = ProducerEntry(ProducerId(1), 0, 15, Offset(15), 2, 100)
    await kafka.tier(0, 9, producers=[old])
    await kafka.tier(10, 19, producers=[new])
    [producer] = (await kafka.plan()).to_adopt.producers
    assert producer == (1, 0, 15, 15, 2, 100)


async def test_open_transactions_are_refused_with_their_producers(kafka: Kafka) -> None:
    ended = ProducerEntry(ProducerId(8), 0, 5, Offset(5))
    await kafka.tier(0, 9, producers=[ended])
    (await kafka.plan_topic()).check_transactions()
    still_open = ProducerEntry(ProducerId(9), 0, 5, Offset(15), txn_first_offset=Offset(0))
    await kafka.tier(10, 19, producers=[ended, still_open])
    plan = await kafka.plan_topic()
    assert plan.partitions[0].open_producers == [9]
    with pytest.raises(OpenTransactionsError, match=r"partition 0: 9\."):
        plan.check_transactions()


# Sealed.


@pytest.mark.parametrize(
    ("log_start", "log_end", "lost"), [(0, 20, 0), (0, 21, 1), (12, 25, 5), (None, 20, 0)]
)
async def test_records_behind_the_last_segment_would_be_lost(
    kafka: Kafka, log_start: int | None, log_end: int, lost: int
) -> None:
    await kafka.tier(0, 19)
    plan = await kafka.plan_topic(log_start=log_start, log_end=log_end)
    assert plan.partitions[0].lost_records == lost
    if lost:
        with pytest.raises(UnsealedSourceError, match=f"lost: {lost} of partition 0"):
            plan.check_sealed()
    else:
        plan.check_sealed()


async def test_records_before_the_first_segment_would_be_lost(kafka: Kafka) -> None:
    await kafka.tier(10, 19)
    plan = await kafka.plan(log_start=7, log_end=20)
    assert (plan.lost_records, plan.to_adopt.log_start) == (3, 10)


async def test_an_upload_that_did_not_end_tells_of_records_without_a_segment(
    kafka: Kafka,
) -> None:
    await kafka.tier(0, 9)
    await kafka.tier(10, 14, finish=False)
    assert (await kafka.plan()).lost_records == 5
    # Tried again under another id, nothing is lost.
    await kafka.tier(10, 14)
    assert (await kafka.plan()).lost_records == 0
    # A deletion that did not end is none of that.
    await kafka.tier(15, 19, state=SegmentState.DELETE_STARTED)
    assert (await kafka.plan()).lost_records == 0


async def test_a_partition_with_uploads_alone_is_empty_and_loses_them(kafka: Kafka) -> None:
    await kafka.tier(5, 9, finish=False)
    plan = await kafka.plan()
    assert (bases(plan), plan.lost_records, plan.to_adopt.log_start) == ([], 5, 10)


@pytest.mark.parametrize(
    ("offsets", "start", "lost"),
    [
        ({}, 0, 0),
        ({"log_start": 7}, 7, 0),
        ({"log_start": 7, "log_end": 7}, 7, 0),
        ({"log_start": 7, "log_end": 9}, 9, 2),
    ],
)
async def test_a_partition_that_was_never_tiered_is_empty(
    kafka: Kafka, offsets: dict[str, Any], start: int, lost: int
) -> None:
    plan = await kafka.plan(**offsets)
    assert (bases(plan), plan.to_adopt.log_start, plan.lost_records) == ([], start, lost)
    assert plan.to_adopt.epochs == []


# Objects.


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
    objects = ForeignObjects(store, key_prefix=PREFIX, keys=key_ring())
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
    objects = ForeignObjects(store, key_prefix=PREFIX, keys=key_ring())
    with pytest.raises(DataKeyError, match=KEY_BASE):
        await objects.check(ADDED)


async def test_the_transaction_index_of_the_manifest_is_believed(
    store: ObjectStore, tmp_path: Path
) -> None:
    lay_out(tmp_path / "tiered", PLAIN)
    objects = ForeignObjects(store, key_prefix=PREFIX, keys=KeyRing())
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
    foreign = ForeignObjects(store, key_prefix=PREFIX, keys=KeyRing(), realms=realms)
    if refused:
        with pytest.raises(OwnRealmError, match="where this cluster deletes"):
            await foreign.check(ADDED)
    else:
        await foreign.check(ADDED)


def test_a_place_has_one_spelling() -> None:
    assert place_of("s3://bucket/a/", "b") == place_of("s3://bucket/a", "b") == "s3://bucket/a/b"
    assert place_of("file:/x/y/../z", "b") == place_of("file:///x/z", "b") == "file:///x/z/b"


# The topic in the metadata.


def named(topic: str, topic_id: TopicId, partition: int = PARTITION) -> list[RemoteLogRecord]:
    where = ADDED.partition._replace(
        topic=topic, topic_id=topic_id, partition=PartitionIndex(partition)
    )
    added = replace(ADDED, partition=where, segment_id=SegmentId(uuid4()))
    return [added, finished(added)]


def deleted(topic: str, topic_id: TopicId, partition: int = PARTITION) -> RemoteLogRecord:
    where = ADDED.partition._replace(
        topic=topic, topic_id=topic_id, partition=PartitionIndex(partition)
    )
    return PartitionDeleted(
        partition=where, broker_id=ADDED.broker_id, event_ms=1, state=PartitionDeleteState.MARKED
    )


def fold(*records: RemoteLogRecord) -> FoldedTopics:
    return fold_records(map(encode_record, records))


def test_a_topic_is_found_by_its_name() -> None:
    metadata = fold(*named("a", TOPIC_ID, 0), *named("a", TOPIC_ID, 2), *named("b", OTHER_ID))
    found, partitions = topic_in_metadata(metadata, "a")
    assert (found, sorted(partitions)) == (TOPIC_ID, [0, 2])


def test_a_topic_that_was_created_again_needs_its_id() -> None:
    metadata = fold(*named("a", TOPIC_ID), *named("a", OTHER_ID))
    with pytest.raises(NotInMetadataError, match=r"several topics called a.*--topic-id"):
        topic_in_metadata(metadata, "a")
    assert topic_in_metadata(metadata, "a", OTHER_ID)[0] == OTHER_ID
    with pytest.raises(NotInMetadataError, match="no topic a with the id"):
        topic_in_metadata(metadata, "a", TopicId(uuid4()))


def test_a_topic_that_was_deleted_is_not_meant() -> None:
    records = [*named("a", TOPIC_ID), deleted("a", TOPIC_ID)]
    with pytest.raises(NotInMetadataError, match="was deleted"):
        topic_in_metadata(fold(*records), "a")
    assert topic_in_metadata(fold(*records, *named("a", OTHER_ID)), "a")[0] == OTHER_ID


def test_a_topic_whose_deletion_has_begun_on_some_partitions_is_refused() -> None:
    records = [record for index in range(4) for record in named("a", TOPIC_ID, index)]
    records += [deleted("a", TOPIC_ID, index) for index in (1, 3)]
    for topic_id in (None, TOPIC_ID):
        with pytest.raises(NotInMetadataError, match=r"is being deleted: .* partitions: 1, 3$"):
            topic_in_metadata(fold(*records), "a", topic_id)
    # Another one of its name is meant then, if there is one.
    found, partitions = topic_in_metadata(fold(*records, *named("a", OTHER_ID, 2)), "a")
    assert (found, sorted(partitions)) == (OTHER_ID, [2])


def test_a_deleted_topic_is_told_also_if_it_is_named_by_its_id() -> None:
    records = [*named("a", TOPIC_ID), deleted("a", TOPIC_ID), *named("a", OTHER_ID)]
    with pytest.raises(NotInMetadataError, match="was deleted"):
        topic_in_metadata(fold(*records), "a", TOPIC_ID)


def test_an_unknown_topic_is_told_with_the_nearest_name() -> None:
    with pytest.raises(NotInMetadataError, match='did you mean "orders"'):
        topic_in_metadata(fold(*named("orders", TOPIC_ID)), "order")


def test_configs_that_mean_nothing_here_are_left_out() -> None:
    usable, left_out = usable_configs(
        {"retention.ms": "5", "no.such": "x", "cleanup.policy": "compact"}
    )
    assert usable == {"retention.ms": "5"}
    assert len(left_out) == 2
    assert "no.such" in left_out[0]


# The steps.


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    control = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    yield control
    await control.close()


async def test_each_step_of_an_adoption_may_be_the_last_before_a_crash(
    kafka: Kafka, control: ControlPlane
) -> None:
    await kafka.tier(0, 9)
    await check_free(control, TOPIC, TOPIC_ID)
    await control.topics.adopt((await kafka.plan_topic()).topic)
    with pytest.raises(AdoptedAlreadyError, match=r"read but not written.*topic migrate topic1"):
        await check_free(control, TOPIC, TOPIC_ID)
    await control.topics.begin_migration(TOPIC_ID)
    with pytest.raises(AdoptedAlreadyError, match=r"has begun.*topic migrate topic1"):
        await check_free(control, TOPIC, TOPIC_ID)
    await open_for_writes(control, TOPIC_ID)
    with pytest.raises(AdoptedAlreadyError, match="nothing is left to do"):
        await check_free(control, TOPIC, TOPIC_ID)
    [state] = await control.log.topic_partitions(TOPIC_ID)
    assert migration_state(state) is MigrationState.HYBRID
    with pytest.raises(MigrationRefusedError):
        await open_for_writes(control, TOPIC_ID)


async def test_a_name_or_an_id_that_is_taken_is_told(kafka: Kafka, control: ControlPlane) -> None:
    await kafka.tier(0, 9)
    await control.topics.adopt((await kafka.plan_topic()).topic)
    with pytest.raises(TopicExistsError, match="another topic called topic1"):
        await check_free(control, TOPIC, OTHER_ID)
    with pytest.raises(TopicExistsError, match="belongs to topic topic1"):
        await check_free(control, "other", TOPIC_ID)
