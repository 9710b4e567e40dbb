"""Adoption: the topic of another cluster, with its id, its epochs and its offsets."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from tests.contract.control.building import batch, change, commit, outcomes, part, state_of
from tests.contract.control.segment_building import UPLOADED, chain_of, epoch, known, segment

from stratalog.checks.promises import boundaries_hold
from stratalog.control.identity.ledger import FIRST_PRODUCER_ID
from stratalog.control.log.model import CommitOutcome, Span, WriteTier
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.model import EpochStart, SegmentState
from stratalog.control.sql.database import Database
from stratalog.control.topics.errors import AdoptionRefusedError, TopicExistsError
from stratalog.control.topics.migration_state import MigrationState, migration_state
from stratalog.control.topics.model import (
    ADOPTED_EPOCHS_END,
    ADOPTED_OFFSETS_END,
    ADOPTED_PRODUCERS_END,
    MAX_PARTITIONS,
    AdoptedProducer,
    AdoptedSegment,
    PartitionToAdopt,
    Topic,
    TopicToAdopt,
)
from stratalog.ids import Offset, PartitionIndex, ProducerId, TopicId, TopicPartition

TOPIC_ID = TopicId(uuid4())
STORE = "s3://elsewhere/tiered"
LINEAGE = (epoch(2, 10), epoch(3, 15), epoch(5, 24))
DAY_MS = 24 * 60 * 60 * 1000


def adopted(index: int, base: int, last: int, **changes: Any) -> AdoptedSegment:
    key = TopicPartition(TOPIC_ID, PartitionIndex(index))
    added = segment(key, base, last, **{"store_url": STORE, **changes})
    uploaded = replace(UPLOADED, custom_metadata=b"\x00\xff" if base == 20 else None)
    return AdoptedSegment(segment=added, uploaded=uploaded)


def producer(number: int, **changes: int) -> AdoptedProducer:
    values = {
        "producer_epoch": 1,
        "last_sequence": 41,
        "last_offset": 24,
        "offset_delta": 2,
        "timestamp": 1_234,
    }
    fields: dict[str, Any] = values | changes
    return AdoptedProducer(producer_id=ProducerId(number), **fields)


def partition(
    index: int = 0,
    log_start: int = 12,
    segments: Sequence[AdoptedSegment] | None = None,
    *,
    epochs: Sequence[EpochStart] = LINEAGE,
    producers: Sequence[AdoptedProducer] = (),
) -> PartitionToAdopt:
    if segments is None:
        segments = [adopted(index, 10, 19), adopted(index, 20, 24)]
    return PartitionToAdopt(
        partition=PartitionIndex(index),
        log_start=Offset(log_start),
        segments=segments,
        epochs=epochs,
        producers=producers,
    )


def source(*partitions: PartitionToAdopt, name: str = "orders") -> TopicToAdopt:
    return TopicToAdopt(
        topic_id=TOPIC_ID,
        name=name,
        configs={"retention.ms": "-1"},
        partitions=partitions or (partition(),),
    )


def empty(index: int, log_start: int = 0) -> PartitionToAdopt:
    return partition(index, log_start, [], epochs=())


async def test_an_adopted_topic_has_its_id_its_epochs_and_its_offsets(
    plane: ControlPlane,
) -> None:
    topic = await plane.topics.adopt(source(partition(), empty(1, 7)))
    assert (topic.id, topic.name, topic.partition_count) == (TOPIC_ID, "orders", 2)
    assert (topic.configs, topic.leader_epochs) == ({"retention.ms": "-1"}, {0: 5})
    assert await plane.topics.all() == [topic]
    state = await state_of(plane, part(topic))
    assert (state.log_start, state.remote_end, state.block_start) == (12, 25, 25)
    assert (state.block_end, state.high_watermark, state.last_stable) == (25, 25, 25)
    assert (state.write_tier, state.leader_epoch) == (WriteTier.LOCAL, 5)
    assert state.size_bytes == 2_000
    assert migration_state(state) is MigrationState.TIERED_ONLY
    assert await plane.log.epochs(part(topic)) == list(LINEAGE)
    bare = await state_of(plane, part(topic, 1))
    assert (bare.log_start, bare.remote_end, bare.block_start, bare.high_watermark) == (7, 7, 7, 7)
    assert await plane.log.epochs(part(topic, 1)) == [epoch(0, 7)]


@pytest.mark.parametrize("count", [2, 3, 4, 5])
async def test_many_segments_are_adopted_a_few_at_a_time(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr("stratalog.control.topics.adoption._SEGMENTS_AT_ONCE", 2)
    segments = [adopted(0, 10 * i, 10 * i + 9) for i in range(count)]
    topic = await plane.topics.adopt(source(partition(log_start=0, segments=segments, epochs=())))
    assert await chain_of(plane, part(topic)) == [(10 * i, 10 * i + 9) for i in range(count)]


async def test_adopted_segments_are_chained_where_they_lie_and_not_ours(
    plane: ControlPlane,
) -> None:
    to_adopt = source()
    topic = await plane.topics.adopt(to_adopt)
    assert await chain_of(plane, part(topic)) == [(10, 19), (20, 24)]
    [first, second] = await plane.segments.chained(part(topic), limit=10)
    assert (first.chained, first.owned, first.state) == (True, False, SegmentState.COPY_FINISHED)
    assert (first.uploaded, first.store_url) == (UPLOADED, STORE)
    assert second.uploaded == replace(UPLOADED, custom_metadata=b"\x00\xff")
    assert first.segment_id == to_adopt.partitions[0].segments[0].segment.segment_id
    assert await plane.segments.own(topic.id) == 2
    [first, _] = await plane.segments.chained(part(topic), limit=10)
    assert first.owned


async def test_a_name_or_an_id_that_is_taken_is_refused(plane: ControlPlane) -> None:
    topic = await plane.topics.create("orders", partition_count=1, configs={})
    with pytest.raises(TopicExistsError):
        await plane.topics.adopt(source())
    await plane.topics.delete(topic.id)
    await plane.topics.adopt(source())
    with pytest.raises(TopicExistsError):
        await plane.topics.adopt(source(name="other"))
    # The id is taken until the last of its rows is gone.
    await plane.topics.delete(TOPIC_ID)
    with pytest.raises(TopicExistsError):
        await plane.topics.adopt(source())
    while await plane.topics.purge_deleted(window_ms=0, max_rows=100):
        pass
    assert (await plane.topics.adopt(source())).id == TOPIC_ID


async def test_segments_that_are_known_already_are_refused_and_nothing_is_left(
    plane: ControlPlane, topic: Topic
) -> None:
    to_adopt = source()
    taken = to_adopt.partitions[0].segments[1].segment
    await plane.segments.add(taken)
    with pytest.raises(AdoptionRefusedError, match="1 of its 2 segments"):
        await plane.topics.adopt(to_adopt)
    assert await plane.topics.all() == [topic]
    assert len(await plane.segments.all(limit=10)) == 1


@pytest.mark.parametrize(
    ("partitions", "named"),
    [
        ((partition(1),), r"\[1\]"),
        ((partition(0), partition(2)), r"\[0, 2\]"),
        ((partition(1), partition(0)), r"\[1, 0\]"),
        ((partition(0, 12, [adopted(0, 10, 19), adopted(0, 21, 24)]),), "begins at 21.*with 19"),
        ((partition(0, 12, [adopted(0, 10, 19), adopted(0, 15, 19)]),), "begins at 15.*with 19"),
        ((partition(0, 12, [adopted(0, 20, 24), adopted(0, 10, 19)]),), "begins at 10.*with 24"),
        ((partition(0, 12, [adopted(0, 10, 9)]),), "begins at 10 and ends with 9"),
        ((partition(0, 9),), "starts at 9.*10 to 19"),
        ((partition(0, 20),), "starts at 20.*10 to 19"),
        ((partition(0, -1, [], epochs=()),), "starts at -1"),
        ((partition(0, 12, [adopted(1, 10, 24)]),), "belongs to another"),
        ((partition(epochs=[epoch(3, 10), epoch(3, 12)]),), "epoch 3 from offset 12"),
        ((partition(epochs=[epoch(3, 10), epoch(4, 9)]),), "epoch 4 from offset 9"),
        ((partition(epochs=[epoch(3, 10), epoch(4, 26)]),), "offset 26, the partition ends at 25"),
        ((partition(epochs=[epoch(-1, 10)]),), "epoch -1"),
        ((partition(0, ADOPTED_OFFSETS_END + 1, [], epochs=()),), "ends at offset"),
        ((partition(0, 2**63, [], epochs=()),), "ends at offset 9223372036854775808"),
        ((partition(0, 12, [adopted(0, 10, ADOPTED_OFFSETS_END)]),), "ends at offset"),
        ((partition(0, 12, [adopted(0, 10, 2**63 - 1)]),), "ends at offset"),
        ((partition(epochs=[epoch(ADOPTED_EPOCHS_END, 10)]),), "epoch 1073741824"),
        ((partition(producers=[producer(ADOPTED_PRODUCERS_END)]),), "producer 4611686018427387904"),
    ],
)
async def test_what_is_not_a_whole_topic_is_refused(
    plane: ControlPlane, partitions: tuple[PartitionToAdopt, ...], named: str
) -> None:
    with pytest.raises(AdoptionRefusedError, match=named):
        await plane.topics.adopt(source(*partitions))
    assert await plane.topics.all() == []


async def test_a_topic_of_more_partitions_than_any_has_is_refused(plane: ControlPlane) -> None:
    many = [empty(index) for index in range(MAX_PARTITIONS + 1)]
    with pytest.raises(AdoptionRefusedError, match="has 10001 partitions: 10000 are the most"):
        await plane.topics.adopt(source(*many))
    assert (await plane.topics.adopt(source(*many[:-1]))).partition_count == MAX_PARTITIONS


async def test_records_follow_the_highest_offset_epoch_and_producer_that_are_adopted(
    plane: ControlPlane,
) -> None:
    end = ADOPTED_OFFSETS_END
    highest = partition(
        0,
        12,
        [adopted(0, 10, end - 1)],
        epochs=[epoch(ADOPTED_EPOCHS_END - 1, 10)],
        producers=[producer(ADOPTED_PRODUCERS_END - 1)],
    )
    topic = await plane.topics.adopt(source(highest, empty(1, end)))
    await plane.topics.begin_migration(topic.id)
    await plane.topics.switch_to_blocks(topic.id)
    answers = await commit(plane, batch(part(topic), 5), batch(part(topic, 1), 5))
    assert [(one.base_offset, one.leader_epoch) for one in answers] == [
        (end, ADOPTED_EPOCHS_END),
        (end, 1),
    ]
    assert await plane.log.allocate_producer_ids(1) == ADOPTED_PRODUCERS_END


@pytest.mark.parametrize("log_start", [10, 19])
async def test_the_start_may_lie_anywhere_in_the_first_segment(
    plane: ControlPlane, log_start: int
) -> None:
    epochs = [epoch(3, 10), epoch(4, 25), epoch(5, 25)]
    topic = await plane.topics.adopt(source(partition(0, log_start, epochs=epochs)))
    assert (await state_of(plane, part(topic))).log_start == log_start
    assert await plane.log.epochs(part(topic)) == epochs


async def test_an_offset_in_two_segments_is_served_by_the_one_that_ends_first(
    plane: ControlPlane,
) -> None:
    overlapping = [adopted(0, 10, 19), adopted(0, 15, 22), adopted(0, 23, 24)]
    topic = await plane.topics.adopt(source(partition(0, 12, overlapping)))
    assert await chain_of(plane, part(topic)) == [(10, 19), (15, 22), (23, 24)]
    served = {}
    for offset in range(12, 25):
        span = Span(
            topic_id=topic.id,
            partition=PartitionIndex(0),
            offset=Offset(offset),
            max_bytes=1 << 30,
        )
        [found] = await plane.log.find_batches([span])
        served[offset] = [(one.base_offset, one.last_offset) for one in found.segments]
    # An answer ends before an overlap: its reader comes back for the first offset behind it.
    assert served == {
        **{key: [(10, 19)] for key in range(12, 20)},
        **{key: [(15, 22), (23, 24)] for key in range(20, 23)},
        **{key: [(23, 24)] for key in range(23, 25)},
    }
    assert boundaries_hold(await state_of(plane, part(topic))) == []


@pytest.mark.parametrize(("log_start", "left"), [(19, 3), (20, 2), (22, 2), (23, 1)])
async def test_overlapping_segments_go_one_by_one(
    plane: ControlPlane, log_start: int, left: int
) -> None:
    overlapping = [adopted(0, 10, 19), adopted(0, 15, 22), adopted(0, 23, 24)]
    topic = await plane.topics.adopt(source(partition(0, 12, overlapping)))
    await plane.log.delete_records({part(topic): Offset(log_start)})
    assert len(await chain_of(plane, part(topic))) == left
    state = await state_of(plane, part(topic))
    assert (state.log_start, state.size_bytes) == (log_start, left * 1_000)


async def test_producers_go_on_where_they_were(plane: ControlPlane, database: Database) -> None:
    topic = await plane.topics.adopt(source(partition(producers=[producer(7)])))
    key = part(topic)
    await plane.topics.begin_migration(topic.id)
    await plane.topics.switch_to_blocks(topic.id)
    repeat, following, gap, fenced = await commit(
        plane,
        batch(key, 3, producer=7, epoch=1, sequence=39),
        batch(key, 2, producer=7, epoch=1, sequence=42),
        batch(key, 1, producer=7, epoch=1, sequence=50),
        batch(key, 1, producer=7, epoch=0, sequence=44),
    )
    assert (repeat.outcome, repeat.base_offset) == (CommitOutcome.DUPLICATE, 22)
    assert repeat.append_time_ms == 1_234
    assert (following.outcome, following.base_offset) == (CommitOutcome.ACCEPTED, 25)
    assert outcomes([gap, fenced]) == [
        CommitOutcome.OUT_OF_ORDER_SEQUENCE,
        CommitOutcome.FENCED_PRODUCER,
    ]
    assert migration_state(await state_of(plane, key)) is MigrationState.HYBRID
    assert following.leader_epoch == 6


async def test_sequences_that_wrap_inside_the_last_batch_go_on(plane: ControlPlane) -> None:
    wrapped = producer(7, last_sequence=1, offset_delta=4)
    topic = await plane.topics.adopt(source(partition(producers=[wrapped])))
    await plane.topics.begin_migration(topic.id)
    await plane.topics.switch_to_blocks(topic.id)
    repeat, following = await commit(
        plane,
        batch(part(topic), 5, producer=7, epoch=1, sequence=2**31 - 3),
        batch(part(topic), 1, producer=7, epoch=1, sequence=2),
    )
    assert (repeat.outcome, repeat.base_offset) == (CommitOutcome.DUPLICATE, 20)
    assert following.outcome is CommitOutcome.ACCEPTED


async def test_adopted_producers_are_as_young_as_the_adoption(plane: ControlPlane) -> None:
    topic = await plane.topics.adopt(source(partition(producers=[producer(7)])))
    assert await plane.log.expire_producers(idle_ms=DAY_MS, max_rows=10) == 0
    [active] = (await plane.log.active_producers([part(topic)]))[part(topic)]
    assert (active.producer_id, active.epoch, active.last_sequence) == (7, 1, 41)


async def test_a_producer_without_a_sequence_may_begin_with_any(plane: ControlPlane) -> None:
    seen = FIRST_PRODUCER_ID + 7
    marker_only = producer(seen, last_sequence=-1, last_offset=-1, offset_delta=0)
    topic = await plane.topics.adopt(source(partition(producers=[marker_only])))
    assert await plane.log.active_producers([part(topic)]) == {part(topic): []}
    assert await plane.log.allocate_producer_ids(1) == seen + 1


@pytest.mark.parametrize(("given_out", "first"), [(10, 9_001), (9_001, 9_001), (9_002, 9_002)])
async def test_new_producers_get_numbers_that_no_adopted_one_has(
    plane: ControlPlane, given_out: int, first: int
) -> None:
    """A cluster that was one of ours may have given them out, so they may be like ours."""
    await plane.log.allocate_producer_ids(given_out)
    producers = [producer(FIRST_PRODUCER_ID + 9_000), producer(12)]
    await plane.topics.adopt(source(partition(producers=producers), empty(1)))
    assert await plane.log.allocate_producer_ids(5) == FIRST_PRODUCER_ID + first


async def test_numbers_that_brokers_took_before_are_none_that_kafka_gave_out(
    plane: ControlPlane,
) -> None:
    """A broker takes many at once, and gives them out long after the adoption."""
    taken = await plane.log.allocate_producer_ids(1000)
    topic = await plane.topics.adopt(source(partition(producers=[producer(7), producer(999)])))
    await plane.topics.begin_migration(topic.id)
    await plane.topics.switch_to_blocks(topic.id)
    for number in (7, 999):
        [answer] = await commit(
            plane, batch(part(topic), 1, producer=taken + number, epoch=0, sequence=0)
        )
        assert answer.outcome is CommitOutcome.ACCEPTED


async def test_without_producers_the_numbers_go_on(plane: ControlPlane) -> None:
    first = await plane.log.allocate_producer_ids(10)
    await plane.topics.adopt(source())
    assert await plane.log.allocate_producer_ids(1) == first + 10


async def test_epochs_of_adopted_topics_are_told_wherever_topics_are(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    adopted_topic = await plane.topics.adopt(source(partition(), empty(1)))
    by_name = {each.name: each.leader_epochs for each in await plane.topics.all()}
    assert by_name == {"events": {}, "orders": {0: 5}}
    [named] = await plane.topics.named(["orders"])
    [with_id] = await plane.topics.with_ids([TOPIC_ID])
    assert named == with_id == adopted_topic
    assert await plane.topics.named(["nothing"]) == []
    grown = await plane.topics.add_partitions(TOPIC_ID, partition_count=3)
    assert grown.leader_epochs == {0: 5}
    assert grown.write_tiers == {0: WriteTier.LOCAL, 1: WriteTier.LOCAL}
    assert (await plane.topics.set_configs(TOPIC_ID, {"a": "b"})).leader_epochs == {0: 5}
    await change(database, "UPDATE heads SET leader_epoch = 1 WHERE topic_id = $1", topic.id)
    assert (await plane.topics.set_configs(topic.id, {})).leader_epochs == {0: 1, 1: 1, 2: 1}
    assert replace(grown, leader_epochs={}) != grown


async def test_segments_of_a_deleted_topic_that_are_not_ours_leave_no_trace(
    plane: ControlPlane,
) -> None:
    to_adopt = source()
    await plane.topics.adopt(to_adopt)
    await plane.topics.delete(TOPIC_ID)
    while await plane.topics.purge_deleted(window_ms=0, max_rows=100):
        pass
    assert await known(plane, to_adopt.partitions[0].segments[0].segment.segment_id) is None
    assert await plane.segments.doomed(grace_ms=0, limit=10) == []
