"""Segments: added, finished, deleted, and found."""

import os
from dataclasses import replace

import pytest
from tests.contract.control.building import batch, change, commit, part
from tests.contract.control.segment_building import (
    UPLOADED,
    chain_of,
    epoch,
    finish,
    finished,
    known,
    segment,
)

from stratalog.control.plane import ControlPlane
from stratalog.control.segments.errors import SegmentStateError
from stratalog.control.segments.model import SegmentState
from stratalog.control.sql.database import Database
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.ids import LeaderEpoch, Offset, SegmentId, TopicId, TopicPartition, uuid7

DAY_MS = 24 * 60 * 60 * 1000


async def write(plane: ControlPlane, key: TopicPartition, *records: int) -> None:
    """A row of 100 bytes for each number of records."""
    for each in records:
        await commit(plane, batch(key, each))


async def age(database: Database, segment_id: SegmentId) -> None:
    await change(
        database,
        "UPDATE segments SET added_ms = added_ms - $1, changed_ms = changed_ms - $1"
        " WHERE segment_id = $2",
        DAY_MS,
        segment_id,
    )


# Adding and finishing.


async def test_a_segment_is_what_was_said_about_it(plane: ControlPlane, topic: Topic) -> None:
    epochs = (epoch(2, 5), epoch(7, 8))
    added = segment(part(topic, 1), 5, 9, leader_epochs=epochs, broker_id=3, min_timestamp=-5)
    await plane.segments.add(added)
    started = await known(plane, added.segment_id)
    assert started is not None
    assert (started.state, started.uploaded) == (SegmentState.COPY_STARTED, None)
    assert (started.chained, started.owned) == (False, True)
    assert (started.min_timestamp, started.max_timestamp) == (-5, 1_000)
    assert started.leader_epochs == (epoch(2, 5), epoch(7, 8))
    assert (started.key_base, started.store_url, started.broker_id) == (added.key_base, "", 3)
    assert (started.base_offset, started.end_offset, started.size_bytes) == (5, 10, 1_000)
    uploaded = replace(UPLOADED, has_aborted=True, custom_metadata=b"\x00\xff")
    await plane.segments.finish(added.segment_id, uploaded)
    done = await known(plane, added.segment_id)
    assert done is not None
    assert (done.state, done.uploaded) == (SegmentState.COPY_FINISHED, uploaded)
    assert (done.added_ms, done.chained) == (started.added_ms, False)


async def test_adding_and_finishing_may_be_repeated(plane: ControlPlane, topic: Topic) -> None:
    added = segment(part(topic), 0, 9)
    await plane.segments.add(added)
    await plane.segments.add(replace(added, leader_epochs=list(added.leader_epochs)))
    await plane.segments.finish(added.segment_id, UPLOADED)
    await plane.segments.add(added)
    await plane.segments.finish(added.segment_id, UPLOADED)
    done = await known(plane, added.segment_id)
    assert done is not None
    assert done.state is SegmentState.COPY_FINISHED


async def test_another_segment_cannot_take_the_same_id(plane: ControlPlane, topic: Topic) -> None:
    added = segment(part(topic), 0, 9)
    await plane.segments.add(added)
    with pytest.raises(SegmentStateError, match="0 to 9"):
        await plane.segments.add(replace(added, last_offset=Offset(10)))


async def test_a_segment_whose_deletion_began_is_neither_added_nor_finished_again(
    plane: ControlPlane, topic: Topic
) -> None:
    added = segment(part(topic), 0, 9)
    await plane.segments.add(added)
    await plane.segments.delete([added.segment_id])
    with pytest.raises(SegmentStateError):
        await plane.segments.add(added)
    with pytest.raises(SegmentStateError):
        await plane.segments.finish(added.segment_id, UPLOADED)


async def test_a_late_worker_does_not_change_what_is_read_of_a_chained_segment(
    plane: ControlPlane, topic: Topic
) -> None:
    """It may say the same again, if it is in doubt whether it has been heard."""
    key = part(topic)
    await write(plane, key, 5, 5)
    added = segment(key, 0, 4)
    await plane.segments.add(added)
    await plane.segments.finish(added.segment_id, UPLOADED)
    await plane.segments.chain(added.segment_id)
    await plane.segments.finish(added.segment_id, UPLOADED)
    with pytest.raises(SegmentStateError, match="another manifest"):
        await plane.segments.finish(added.segment_id, replace(UPLOADED, manifest='{"other":1}'))
    chained = await known(plane, added.segment_id)
    assert chained is not None
    assert (chained.chained, chained.uploaded) == (True, UPLOADED)


async def test_an_unknown_segment_cannot_be_finished(plane: ControlPlane) -> None:
    with pytest.raises(SegmentStateError):
        await plane.segments.finish(SegmentId(uuid7(1)), UPLOADED)


# Deleting.


async def test_chained_segments_are_not_deleted_by_id(plane: ControlPlane, topic: Topic) -> None:
    key = part(topic)
    await write(plane, key, 5)
    segment_id = await finished(plane, key, 0, 4)
    await plane.segments.chain(segment_id)
    await plane.segments.delete([segment_id])
    await plane.segments.forget([segment_id])
    assert await chain_of(plane, key) == [(0, 4)]


async def test_a_deletion_waits_for_the_grace_period_and_is_then_finished(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    segment_id = await finished(plane, part(topic), 0, 4)
    await plane.segments.delete([segment_id])
    assert await plane.segments.doomed(grace_ms=DAY_MS, limit=10) == []
    await age(database, segment_id)
    [doomed] = await plane.segments.doomed(grace_ms=DAY_MS, limit=10)
    assert (doomed.segment_id, doomed.uploaded) == (segment_id, UPLOADED)
    await plane.segments.forget([segment_id])
    assert await known(plane, segment_id) is None


async def test_finished_segments_wait_for_the_window_of_backups_and_abandoned_ones_do_not(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    whole = await finished(plane, part(topic), 0, 4)
    abandoned = segment(part(topic), 5, 9)
    await plane.segments.add(abandoned)
    await plane.segments.delete([whole, abandoned.segment_id])
    doomed = await plane.segments.doomed(grace_ms=0, window_ms=DAY_MS, limit=10)
    assert [each.segment_id for each in doomed] == [abandoned.segment_id]
    await age(database, whole)
    assert len(await plane.segments.doomed(grace_ms=0, window_ms=DAY_MS, limit=10)) == 2


async def test_a_deletion_that_is_begun_again_keeps_its_time(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    segment_id = await finished(plane, part(topic), 0, 4)
    await plane.segments.delete([segment_id])
    await age(database, segment_id)
    await plane.segments.delete([segment_id])
    assert len(await plane.segments.doomed(grace_ms=DAY_MS, limit=10)) == 1


async def test_segments_that_are_not_being_deleted_are_not_forgotten(
    plane: ControlPlane, topic: Topic
) -> None:
    segment_id = await finished(plane, part(topic), 0, 4)
    await plane.segments.forget([segment_id])
    assert await known(plane, segment_id) is not None
    assert await plane.segments.doomed(grace_ms=0, limit=10) == []


async def test_a_lease_holds_up_deletions_that_began_after_it(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    before = await finished(plane, part(topic), 0, 4)
    after = await finished(plane, part(topic), 0, 4)
    await plane.segments.delete([before])
    await age(database, before)
    lease = await plane.scans.take_lease("scan", duration_ms=DAY_MS)
    await plane.segments.delete([after])
    doomed = await plane.segments.doomed(grace_ms=0, limit=10)
    assert [each.segment_id for each in doomed] == [before]
    await plane.scans.release_lease(lease.lease_id)
    assert len(await plane.segments.doomed(grace_ms=0, limit=10)) == 2


async def test_doomed_segments_are_handed_out_in_pages(plane: ControlPlane, topic: Topic) -> None:
    ids = [await finished(plane, part(topic), 0, 4) for _ in range(5)]
    # Together, so that they have the same time.
    await plane.segments.delete(ids)
    handed, after = [], None
    while page := await plane.segments.doomed(grace_ms=0, limit=2, after=after):
        handed += [each.segment_id for each in page]
        after = page[-1]
    assert handed == sorted(ids)


async def test_segments_of_somebody_else_are_forgotten_at_once(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    owned = await finished(plane, part(topic), 0, 4)
    foreign = await finished(plane, part(topic), 0, 4)
    await change(database, "UPDATE segments SET owned = false WHERE segment_id = $1", foreign)
    await plane.segments.delete([owned, foreign])
    assert await known(plane, foreign) is None
    left = await known(plane, owned)
    assert left is not None
    assert left.state is SegmentState.DELETE_STARTED


async def test_unchained_segments_are_those_that_somebody_forgot(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await write(plane, key, 5)
    started = segment(key, 0, 4)
    await plane.segments.add(started)
    done, chained, deleted = [await finished(plane, key, 0, 4) for _ in range(3)]
    await plane.segments.chain(chained)
    await plane.segments.delete([deleted])
    for each in (started.segment_id, done, chained, deleted):
        await age(database, each)
    young = await finished(plane, key, 0, 4)
    found = await plane.segments.unchained(older_than_ms=DAY_MS // 2, limit=10)
    assert {each.segment_id for each in found} == {started.segment_id, done}
    assert len(await plane.segments.unchained(older_than_ms=0, limit=10)) == 3
    assert len(await plane.segments.unchained(older_than_ms=0, limit=1)) == 1
    assert young in {
        each.segment_id for each in await plane.segments.unchained(older_than_ms=0, limit=10)
    }


# Finding.


async def test_segments_of_a_partition_come_in_pages(plane: ControlPlane, topic: Topic) -> None:
    key = part(topic)
    await write(plane, key, 5, 5, 5)
    for base in (0, 5, 10):
        await plane.segments.chain(await finished(plane, key, base, base + 4))
    await write(plane, part(topic, 1), 5)
    await plane.segments.chain(await finished(plane, part(topic, 1), 0, 4))
    first = await plane.segments.chained(key, limit=2)
    assert [each.base_offset for each in first] == [0, 5]
    rest = await plane.segments.chained(key, after=first[-1].last_offset, limit=2)
    assert [each.base_offset for each in rest] == [10]
    assert len(await plane.segments.chained(key, after=Offset(8), limit=9)) == 2
    ids = [each.segment_id for each in await plane.segments.all(limit=3)]
    more = await plane.segments.all(after=ids[-1], limit=3)
    assert len({*ids, *(each.segment_id for each in more)}) == 4
    await plane.topics.delete(topic.id)
    assert await plane.segments.chained(key, limit=9) == []


async def test_a_segment_is_found_by_an_offset_and_the_epoch_it_was_written_in(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await write(plane, key, 10)
    epochs = (epoch(2, 0), epoch(5, 4), epoch(6, 4), epoch(8, 9))
    segment_id = await finish(plane, segment(key, 0, 9, leader_epochs=epochs))

    async def found(number: int, offset: int) -> bool:
        answer = await plane.segments.find(key, LeaderEpoch(number), Offset(offset))
        return answer is not None

    assert not await found(2, 0)
    await plane.segments.chain(segment_id)
    asked = [(2, 0), (2, 3), (6, 4), (6, 8), (8, 9)]
    assert all([await found(*each) for each in asked])
    refused = [(3, 0), (2, 4), (5, 4), (6, 9), (8, 8), (8, 10), (9, 9), (2, -1)]
    assert not any([await found(*each) for each in refused])
    assert await plane.segments.find(part(topic, 1), LeaderEpoch(2), Offset(0)) is None


async def test_ownership_is_taken_of_one_topic_only(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    second = await plane.topics.create("second", partition_count=1, configs={})
    for each in (topic, topic, second):
        await finished(plane, part(each), 0, 4)
    await change(database, "UPDATE segments SET owned = false")
    assert await plane.segments.own(topic.id) == 2
    assert await plane.segments.own(topic.id) == 0
    owned = {each.topic_id: each.owned for each in await plane.segments.all(limit=10)}
    assert owned == {topic.id: True, second.id: False}
    with pytest.raises(UnknownTopicError):
        await plane.segments.own(TopicId(uuid7(1, os.urandom)))


async def test_of_many_ids_those_that_have_a_row_are_known_whatever_their_state(
    plane: ControlPlane, topic: Topic
) -> None:
    await write(plane, part(topic), 5)
    chained = await finished(plane, part(topic), 0, 4)
    await plane.segments.chain(chained)
    started = segment(part(topic, 1), 0, 4)
    await plane.segments.add(started)
    doomed = await finished(plane, part(topic, 2), 0, 4)
    await plane.segments.delete([doomed])
    strange = segment(part(topic), 5, 9).segment_id
    ids = [strange, doomed, chained, chained, started.segment_id]
    assert await plane.segments.known(ids) == {doomed, chained, started.segment_id}
    await plane.segments.forget([doomed])
    assert await plane.segments.known([doomed, strange]) == set()
    assert await plane.segments.known([]) == set()


# Repairing.


async def test_the_upload_of_a_finished_segment_is_replaced(
    plane: ControlPlane, topic: Topic
) -> None:
    await write(plane, part(topic), 5)
    segment_id = await finished(plane, part(topic), 0, 4)
    await plane.segments.chain(segment_id)
    before = await known(plane, segment_id)
    assert before is not None
    anew = replace(UPLOADED, manifest="{}", stored_bytes=7, has_aborted=True)
    await plane.segments.replace_upload(segment_id, anew)
    assert await known(plane, segment_id) == replace(before, uploaded=anew)


async def test_only_a_finished_segment_of_ours_is_uploaded_anew(
    plane: ControlPlane, database: Database, topic: Topic
) -> None:
    started = segment(part(topic), 0, 4)
    await plane.segments.add(started)
    doomed = await finished(plane, part(topic, 1), 0, 4)
    await plane.segments.delete([doomed])
    adopted = await finished(plane, part(topic, 2), 0, 4)
    await change(database, "UPDATE segments SET owned = false WHERE segment_id = $1", adopted)
    strange = segment(part(topic), 5, 9).segment_id
    for segment_id in (started.segment_id, doomed, adopted, strange):
        with pytest.raises(SegmentStateError, match=str(segment_id)):
            await plane.segments.replace_upload(segment_id, UPLOADED)
