"""Sinks: a batch is committed once, however often it is written."""

import asyncio

import pytest
from tests.contract.control.building import batch, block, change, part, rows_of, state_of

from stratalog.control.log.errors import CommitMismatchError
from stratalog.control.log.model import BlockToCommit
from stratalog.control.objects.errors import BarredObjectError
from stratalog.control.plane import ControlPlane
from stratalog.control.scans.errors import SinkBehindError, SinkRefusedError
from stratalog.control.scans.model import SinkOrigin, SinkOutcome
from stratalog.control.sql.database import Database
from stratalog.control.topics.model import Topic
from stratalog.ids import NO_OFFSET, Offset, TopicPartition, kafka_base64

COMMITTED, REPEATED = SinkOutcome.COMMITTED, SinkOutcome.REPEATED


async def end_of(plane: ControlPlane, key: TopicPartition) -> int:
    return (await state_of(plane, key)).high_watermark


async def object_keys(plane: ControlPlane) -> set[str]:
    return {each.key for each in await plane.objects.all(limit=100)}


async def test_all_objects_of_a_batch_are_committed_at_once(
    plane: ControlPlane, topic: Topic
) -> None:
    one, other = part(topic), part(topic, 1)
    blocks = [block(batch(one, 3), batch(other, 2)), block(batch(one, 4, size=50))]
    assert await plane.scans.commit_sink("s", 0, blocks) is COMMITTED
    assert await rows_of(plane, one) == [(0, 2), (3, 6)]
    assert await rows_of(plane, other) == [(0, 1)]
    assert (await state_of(plane, one)).size_bytes == 150
    assert await object_keys(plane) == {each.key for each in blocks}


async def test_a_batch_that_comes_again_is_not_committed_again(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    blocks = [block(batch(key, 3))]
    assert await plane.scans.commit_sink("s", 5, blocks) is COMMITTED
    # With the same objects after a lost reply, with others when its tasks ran again.
    assert await plane.scans.commit_sink("s", 5, blocks) is REPEATED
    assert await plane.scans.commit_sink("s", 5, [block(batch(key, 3))]) is REPEATED
    assert await plane.scans.commit_sink("s", 5, [block(batch(key, 1), batch(key, 2))]) is REPEATED
    assert await rows_of(plane, key) == [(0, 2)]
    assert await object_keys(plane) == {blocks[0].key}


@pytest.mark.parametrize("count", [0, 2, 4])
async def test_other_rows_under_the_number_of_the_last_batch_are_refused(
    plane: ControlPlane, topic: Topic, count: int
) -> None:
    key = part(topic)
    await plane.scans.commit_sink("s", 0, [block(batch(key, 3))])
    others = [block(batch(key, count))] if count else []
    told = rf"'s' has taken batch 0 already, with 3 records, and now it has {count}: .*above 0"
    with pytest.raises(SinkBehindError, match=told):
        await plane.scans.commit_sink("s", 0, others)
    assert await end_of(plane, key) == 3
    assert await plane.scans.commit_sink("s", 1, others) is COMMITTED


@pytest.mark.parametrize("count", [0, 2, 4])
async def test_a_streams_batch_is_known_by_its_number_and_another_count_is_told(
    plane: ControlPlane, topic: Topic, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Its sources may have lost records, and a table that it is joined with may have won some."""
    key = part(topic)
    assert (
        await plane.scans.commit_sink("s", 1, [block(batch(key, 3))], from_stream=True) is COMMITTED
    )
    assert (
        await plane.scans.commit_sink("s", 1, [block(batch(key, 3))], from_stream=True) is REPEATED
    )
    assert caplog.messages == []
    others = [block(batch(key, count))] if count else []
    assert await plane.scans.commit_sink("s", 1, others, from_stream=True) is REPEATED
    assert f"with 3 records, and now it has {count}" in caplog.text
    assert await end_of(plane, key) == 3


async def test_more_records_in_the_first_batch_of_a_stream_are_those_of_another_one(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await plane.scans.commit_sink("s", 0, [block(batch(key, 3))], from_stream=True)
    for fewer in ([block(batch(key, 2))], []):
        assert await plane.scans.commit_sink("s", 0, fewer, from_stream=True) is REPEATED
    with pytest.raises(SinkBehindError, match="with 3 records, and now it has 4"):
        await plane.scans.commit_sink("s", 0, [block(batch(key, 4))], from_stream=True)
    assert await end_of(plane, key) == 3


async def test_a_stream_that_starts_over_is_behind_whatever_it_counts(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await plane.scans.commit_sink("s", 7, [block(batch(key, 3))], from_stream=True)
    for late in (0, 6):
        with pytest.raises(SinkBehindError, match="sinkId of its own"):
            await plane.scans.commit_sink("s", late, [block(batch(key, 3))], from_stream=True)
    assert await end_of(plane, key) == 3


async def test_the_last_batch_of_a_sink_can_be_asked_for(plane: ControlPlane, topic: Topic) -> None:
    assert await plane.scans.last_sink_batch("s") is None
    await plane.scans.commit_sink("s", 7, [block(batch(part(topic)))])
    assert await plane.scans.last_sink_batch("s") == 7
    assert await plane.scans.last_sink_batch("another") is None


async def test_a_batch_that_an_older_version_noted_is_known_by_its_number_alone(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    await plane.scans.commit_sink("s", 0, [block(batch(part(topic), 3))])
    await change(database, "UPDATE sinks SET batch_id = 1, committed_ms = 7")
    assert await plane.scans.commit_sink("s", 1, [block(batch(part(topic), 9))]) is REPEATED
    assert await plane.scans.commit_sink("s", 2, [block(batch(part(topic)))]) is COMMITTED


async def test_objects_of_a_repeat_are_left_to_the_sweeper(
    plane: ControlPlane, topic: Topic
) -> None:
    first, again = block(batch(part(topic))), block(batch(part(topic)))
    await plane.scans.commit_sink("s", 0, [first])
    await plane.scans.commit_sink("s", 0, [again])
    wanted = {each.object_id: each.key for each in (first, again)}
    assert await plane.objects.bar(wanted) == {again.object_id}
    # Not even that changes the answer.
    assert await plane.scans.commit_sink("s", 0, [again]) is REPEATED


async def test_a_repeat_is_known_long_after_the_objects_are_gone(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    blocks = [block(batch(key, 3))]
    await plane.scans.commit_sink("s", 0, blocks)
    await plane.log.delete_records({key: NO_OFFSET})
    await plane.objects.forget([blocks[0].object_id])
    assert await object_keys(plane) == set()
    assert await plane.scans.commit_sink("s", 0, blocks) is REPEATED
    await plane.topics.delete(topic.id)
    assert await plane.scans.commit_sink("s", 0, blocks) is REPEATED


async def test_no_answers_are_kept_for_a_sink(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    await plane.scans.commit_sink("s", 0, [block(batch(part(topic)))])
    rows = await database.read(lambda connection: connection.fetch("SELECT answers FROM objects"))
    assert [row[0] for row in rows] == [None]


@pytest.mark.parametrize("late", [4, 0, -1])
async def test_an_earlier_batch_belongs_to_another_history(
    plane: ControlPlane, topic: Topic, late: int
) -> None:
    await plane.scans.commit_sink("orders copy", 5, [block(batch(part(topic)))])
    with pytest.raises(SinkBehindError, match=r"'orders copy' .* batch 5 .* sinkId of its own"):
        await plane.scans.commit_sink("orders copy", late, [block(batch(part(topic)))])
    assert await end_of(plane, part(topic)) == 1
    assert await plane.scans.commit_sink("another", late, [block(batch(part(topic)))]) is COMMITTED


async def test_batches_may_be_left_out_and_empty_ones_count(
    plane: ControlPlane, topic: Topic
) -> None:
    assert await plane.scans.commit_sink("s", 0, []) is COMMITTED
    assert await plane.scans.commit_sink("s", 0, []) is REPEATED
    with pytest.raises(SinkBehindError, match="with 0 records, and now it has 1"):
        await plane.scans.commit_sink("s", 0, [block(batch(part(topic)))])
    assert await plane.scans.commit_sink("s", 7, []) is COMMITTED
    with pytest.raises(SinkBehindError):
        await plane.scans.commit_sink("s", 6, [])
    assert await end_of(plane, part(topic)) == 0


async def test_one_refused_partition_refuses_the_whole_batch(
    plane: ControlPlane, topic: Topic
) -> None:
    good, missing = part(topic), part(topic, 9)
    blocks = [block(batch(good)), block(batch(good), batch(missing))]
    where = f"partition 9 of topic {kafka_base64(topic.id)} .* does not exist"
    with pytest.raises(SinkRefusedError, match=where):
        await plane.scans.commit_sink("s", 3, blocks)
    assert await rows_of(plane, good) == []
    assert await object_keys(plane) == set()
    # Neither the objects nor the number of the batch are used up.
    await plane.topics.add_partitions(topic.id, partition_count=10)
    assert await plane.scans.commit_sink("s", 3, blocks) is COMMITTED


async def test_a_deleted_topic_and_one_that_blocks_do_not_serve_are_refused(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    gone = await plane.topics.create("gone", partition_count=1, configs={})
    await plane.topics.delete(gone.id)
    with pytest.raises(SinkRefusedError, match="does not exist"):
        await plane.scans.commit_sink("s", 0, [block(batch(part(gone)))])
    await change(database, "UPDATE partitions SET write_tier = 'local' WHERE partition = 1")
    with pytest.raises(SinkRefusedError, match=r"partition 1 .* not written to in blocks"):
        await plane.scans.commit_sink("s", 0, [block(batch(part(topic)), batch(part(topic, 1)))])
    assert await end_of(plane, part(topic)) == 0


async def test_a_sequence_that_was_written_before_is_refused(
    plane: ControlPlane, topic: Topic
) -> None:
    def numbered() -> BlockToCommit:
        return block(batch(part(topic), producer=1, sequence=0))

    await plane.log.commit_blocks([numbered()])
    with pytest.raises(SinkRefusedError, match="DUPLICATE"):
        await plane.scans.commit_sink("s", 0, [numbered()])


async def test_an_object_that_the_sweeper_took_bars_the_batch_but_not_its_number(
    plane: ControlPlane, topic: Topic
) -> None:
    swept, fresh = block(batch(part(topic))), block(batch(part(topic)))
    await plane.objects.bar({swept.object_id: swept.key})
    with pytest.raises(BarredObjectError, match=swept.key):
        await plane.scans.commit_sink("s", 0, [fresh, swept])
    assert await end_of(plane, part(topic)) == 0
    assert await plane.scans.commit_sink("s", 0, [fresh, block(batch(part(topic)))]) is COMMITTED
    assert await end_of(plane, part(topic)) == 2


async def test_objects_serve_one_batch_only(plane: ControlPlane, topic: Topic) -> None:
    used = block(batch(part(topic)))
    await plane.scans.commit_sink("s", 0, [used])
    with pytest.raises(CommitMismatchError, match=used.key):
        await plane.scans.commit_sink("s", 1, [used])
    with pytest.raises(CommitMismatchError, match=used.key):
        await plane.scans.commit_sink("other", 0, [used])
    assert await end_of(plane, part(topic)) == 1
    assert await plane.scans.commit_sink("s", 1, []) is COMMITTED


async def test_committers_of_the_same_batch_take_turns(
    plane: ControlPlane, other: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    for number in range(16):
        # Every other time the sink is new, so that both want to insert its row.
        sink_id, batch_id = f"sink {number // 2}", number % 2
        outcomes = await asyncio.gather(
            plane.scans.commit_sink(sink_id, batch_id, [block(batch(key))]),
            other.scans.commit_sink(sink_id, batch_id, [block(batch(key))]),
        )
        assert sorted(outcomes) == [COMMITTED, REPEATED]
        assert await end_of(plane, key) == number + 1


async def test_a_commit_that_is_rolled_back_leaves_the_batch_to_whoever_waits(
    plane: ControlPlane, other: ControlPlane, topic: Topic
) -> None:
    for number in range(10):
        results = await asyncio.gather(
            plane.scans.commit_sink(f"sink {number}", 0, [block(batch(part(topic, 9)))]),
            other.scans.commit_sink(f"sink {number}", 0, [block(batch(part(topic)))]),
            return_exceptions=True,
        )
        # The bad one either came second, and is a repeat, or changed nothing.
        assert results[0] is REPEATED or isinstance(results[0], SinkRefusedError)
        assert results[1] is COMMITTED
    assert await end_of(plane, part(topic)) == 10


async def test_offsets_follow_those_of_other_writers(plane: ControlPlane, topic: Topic) -> None:
    key = part(topic)
    await plane.log.commit_blocks([block(batch(key, 3))])
    await plane.scans.commit_sink("s", 0, [block(batch(key, 3))])
    await plane.log.commit_blocks([block(batch(key, 3))])
    assert await rows_of(plane, key) == [(0, 2), (3, 5), (6, 8)]
    await plane.log.delete_records({key: Offset(3)})
    assert (await state_of(plane, key)).log_start == 3


FIRST_STREAM, OTHER_STREAM = SinkOrigin("checkpoint", "one"), SinkOrigin("checkpoint", "other")


@pytest.mark.parametrize("records", [2, 3])
async def test_the_first_batch_of_another_stream_is_no_repeat(
    plane: ControlPlane, topic: Topic, records: int
) -> None:
    key = part(topic)

    async def write(origin: SinkOrigin | None, count: int) -> SinkOutcome:
        blocks = [block(batch(key, count))]
        return await plane.scans.commit_sink("s", 0, blocks, from_stream=True, origin=origin)

    assert await write(FIRST_STREAM, 3) is COMMITTED
    with pytest.raises(SinkBehindError, match="sinkId of its own"):
        await write(OTHER_STREAM, records)
    assert await write(FIRST_STREAM, records) is REPEATED
    # A stream that cannot tell, and one that tells in another way, are known by the number.
    assert await write(None, records) is REPEATED
    assert await write(SinkOrigin("location", "/elsewhere"), records) is REPEATED
    assert await end_of(plane, key) == 3


async def test_a_later_batch_notes_its_own_origin(plane: ControlPlane, topic: Topic) -> None:
    key = part(topic)
    await plane.scans.commit_sink("s", 0, [block(batch(key))], from_stream=True)
    for _ in range(2):
        await plane.scans.commit_sink(
            "s", 1, [block(batch(key))], from_stream=True, origin=FIRST_STREAM
        )
    with pytest.raises(SinkBehindError, match="checkpoint:one"):
        await plane.scans.commit_sink(
            "s", 1, [block(batch(key))], from_stream=True, origin=OTHER_STREAM
        )
