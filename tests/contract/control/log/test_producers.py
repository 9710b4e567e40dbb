"""Idempotence: the sequences that a producer may write next, as the database remembers them."""

import pytest
from tests.contract.control.building import (
    batch,
    change,
    commit,
    offsets,
    outcomes,
    part,
    rows_of,
    state_of,
)

from stratalog.control.log.model import CommitAnswer, CommitOutcome
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database
from stratalog.control.topics.model import Topic

ACCEPTED = CommitOutcome.ACCEPTED
DUPLICATE = CommitOutcome.DUPLICATE
OUT_OF_ORDER = CommitOutcome.OUT_OF_ORDER_SEQUENCE
FENCED = CommitOutcome.FENCED_PRODUCER
LAST = 2**31 - 1


async def produce(
    plane: ControlPlane, topic: Topic, sequence: int, records: int = 1, *, epoch: int = 0
) -> CommitAnswer:
    [answer] = await commit(
        plane, batch(part(topic), records, producer=7, epoch=epoch, sequence=sequence)
    )
    return answer


async def test_a_duplicate_is_answered_with_its_first_offset_and_time(
    plane: ControlPlane, topic: Topic
) -> None:
    await commit(plane, batch(part(topic), 10))
    first = await produce(plane, topic, 0, 3)
    again = await produce(plane, topic, 0, 3)
    assert (again.outcome, again.base_offset) == (DUPLICATE, 10)
    assert again.append_time_ms == first.append_time_ms
    assert (await state_of(plane, part(topic))).high_watermark == 13


async def test_the_last_five_batches_are_remembered_and_no_more(
    plane: ControlPlane, topic: Topic
) -> None:
    for sequence in range(6):
        await produce(plane, topic, sequence)
    assert (await produce(plane, topic, 1)).base_offset == 1
    assert (await produce(plane, topic, 0)).outcome is OUT_OF_ORDER


@pytest.mark.parametrize(("sequence", "outcome"), [(3, ACCEPTED), (4, OUT_OF_ORDER)])
async def test_a_gap_in_the_sequence_is_refused(
    plane: ControlPlane, topic: Topic, sequence: int, outcome: CommitOutcome
) -> None:
    await produce(plane, topic, 0, 3)
    assert (await produce(plane, topic, sequence)).outcome is outcome


async def test_an_unknown_producer_may_start_anywhere(plane: ControlPlane, topic: Topic) -> None:
    assert (await produce(plane, topic, 1234)).outcome is ACCEPTED
    assert (await produce(plane, topic, 1235)).outcome is ACCEPTED


async def test_partitions_remember_apart(plane: ControlPlane, topic: Topic) -> None:
    await produce(plane, topic, 0)
    answers = await commit(plane, batch(part(topic, 1), producer=7, sequence=0))
    assert outcomes(answers) == [ACCEPTED]


@pytest.mark.parametrize(("sequence", "outcome"), [(0, ACCEPTED), (1, OUT_OF_ORDER)])
async def test_a_newer_epoch_starts_at_zero(
    plane: ControlPlane, topic: Topic, sequence: int, outcome: CommitOutcome
) -> None:
    await produce(plane, topic, 0)
    assert (await produce(plane, topic, sequence, epoch=1)).outcome is outcome


async def test_an_older_epoch_is_fenced(plane: ControlPlane, topic: Topic) -> None:
    await produce(plane, topic, 0, epoch=1)
    assert (await produce(plane, topic, 1, epoch=0)).outcome is FENCED
    assert (await produce(plane, topic, 0, epoch=0)).outcome is FENCED


async def test_sequences_wrap_around_between_batches(plane: ControlPlane, topic: Topic) -> None:
    await produce(plane, topic, LAST - 1, 2)
    assert (await produce(plane, topic, 0, 3)).outcome is ACCEPTED
    assert (await produce(plane, topic, LAST - 1, 2)).base_offset == 0
    assert (await produce(plane, topic, 3)).outcome is ACCEPTED


async def test_sequences_wrap_around_inside_a_batch(plane: ControlPlane, topic: Topic) -> None:
    await produce(plane, topic, LAST, 3)
    again = await produce(plane, topic, LAST, 3)
    assert (again.outcome, again.base_offset) == (DUPLICATE, 0)
    assert (await produce(plane, topic, 3)).outcome is OUT_OF_ORDER
    assert (await produce(plane, topic, 2)).outcome is ACCEPTED


async def test_batches_of_one_commit_follow_each_other(plane: ControlPlane, topic: Topic) -> None:
    key = part(topic)
    answers = await commit(
        plane,
        batch(key, 2, producer=7, sequence=0),
        batch(key, 2, producer=8, sequence=0),
        batch(key, 2, producer=7, sequence=2),
        batch(key, 2, producer=7, sequence=0),
        batch(key, 2, producer=8, sequence=5),
        batch(key, 1, producer=8, sequence=2),
    )
    assert outcomes(answers) == [ACCEPTED, ACCEPTED, ACCEPTED, DUPLICATE, OUT_OF_ORDER, ACCEPTED]
    assert offsets(answers) == [0, 2, 4, 0, -1, 6]
    # The bytes of the two that were refused part the rows.
    assert await rows_of(plane, key) == [(0, 5), (6, 6)]


async def test_an_expired_producer_may_start_anywhere(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    await produce(plane, topic, 0)
    await commit(plane, batch(part(topic), producer=8, sequence=0))
    await change(database, "UPDATE producers SET last_ms = last_ms - 100000 WHERE producer_id = 7")
    assert await plane.log.expire_producers(idle_ms=200_000, max_rows=10) == 0
    assert await plane.log.expire_producers(idle_ms=50_000, max_rows=10) == 1
    assert (await produce(plane, topic, 500)).outcome is ACCEPTED
    answers = await commit(plane, batch(part(topic), producer=8, sequence=500))
    assert outcomes(answers) == [OUT_OF_ORDER]


async def test_expiry_takes_no_more_than_asked(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    await commit(plane, *(batch(part(topic), producer=i, sequence=0) for i in range(5)))
    await change(database, "UPDATE producers SET last_ms = 0")
    assert await plane.log.expire_producers(idle_ms=1000, max_rows=3) == 3
    assert await plane.log.expire_producers(idle_ms=1000, max_rows=3) == 2


async def test_producer_ids_are_given_once(plane: ControlPlane, other: ControlPlane) -> None:
    first = await plane.log.allocate_producer_ids(10)
    assert await other.log.allocate_producer_ids(1) == first + 10
    assert await plane.log.allocate_producer_ids(5) == first + 11


async def test_the_producers_of_a_partition_are_told_with_their_last_sequence(
    plane: ControlPlane, topic: Topic
) -> None:
    await produce(plane, topic, 0, 3)
    last = await produce(plane, topic, 3, 4, epoch=0)
    await commit(plane, batch(part(topic), producer=3, epoch=9, sequence=LAST))
    await commit(plane, batch(part(topic, 1), producer=8, sequence=0))
    found = await plane.log.active_producers([part(topic), part(topic, 2)])
    assert [tuple(one)[:3] for one in found[part(topic)]] == [(3, 9, LAST), (7, 0, 6)]
    assert found[part(topic)][1].last_ms == last.append_time_ms
    assert found[part(topic, 2)] == []


async def test_a_producer_that_has_expired_is_no_longer_told_and_may_go_on(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    await produce(plane, topic, 0, 3)
    await change(database, "UPDATE producers SET last_ms = last_ms - 100000")
    assert await plane.log.expire_producers(idle_ms=60_000, max_rows=10) == 1
    assert await plane.log.active_producers([part(topic)]) == {part(topic): []}
    assert (await produce(plane, topic, 3)).outcome is ACCEPTED
    [again] = (await plane.log.active_producers([part(topic)]))[part(topic)]
    assert again.last_sequence == 3


async def test_what_follows_a_missing_batch_is_to_be_sent_again_after_it(
    plane: ControlPlane, topic: Topic
) -> None:
    follower = batch(part(topic), producer=9, sequence=1)._replace(must_follow=True)
    assert outcomes(await commit(plane, follower)) == [CommitOutcome.FOLLOWS_MISSING]
    assert outcomes(await commit(plane, batch(part(topic), producer=9, sequence=0))) == [ACCEPTED]
    gap = follower._replace(base_sequence=5)
    assert outcomes(await commit(plane, gap)) == [CommitOutcome.FOLLOWS_MISSING]
    assert outcomes(await commit(plane, follower)) == [ACCEPTED]
