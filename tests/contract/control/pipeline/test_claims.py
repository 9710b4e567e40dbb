"""Claims: one run at a time works on a partition, and only while its claim lasts."""

import asyncio
from uuid import uuid4

from tests.contract.control.building import batch, change, commit, part
from tests.contract.control.pipeline_building import (
    LONG_MS,
    MAX_ATTEMPTS,
    claim,
    claim_all,
    expire,
    new_run,
    wish,
)

from stratalog.control.pipeline.model import UnitKind
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database
from stratalog.control.topics.model import Topic
from stratalog.ids import PartitionIndex, TopicPartition


async def attempts_of(database: Database, key: TopicPartition) -> tuple[int, str | None, bool]:
    """Failures, the last error, and whether it is parked."""
    rows = await database.read(
        lambda connection: connection.fetch(
            "SELECT attempts, error, parked_ms FROM claims WHERE topic_id = $1 AND partition = $2",
            *key,
        )
    )
    return rows[0][0], rows[0][1], rows[0][2] is not None


# Getting a claim.


async def test_a_claim_says_what_was_claimed_and_until_when(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    run = new_run()
    [claimed] = await plane.pipeline.claim_ranges(
        run, [wish(part(topic, 1), 5, 17)], duration_ms=LONG_MS, max_attempts=MAX_ATTEMPTS
    )
    assert (claimed.run_id, claimed.partition) == (run, part(topic, 1))
    assert (claimed.first_offset, claimed.end_offset, claimed.attempts) == (5, 17, 0)
    assert claimed.kind is UnitKind.SPLIT
    [(now_ms,)] = await database.read(lambda connection: connection.fetch("SELECT {now_ms}"))
    assert 0 < claimed.expires_ms - now_ms <= LONG_MS


async def test_what_one_run_holds_another_does_not_get(plane: ControlPlane, topic: Topic) -> None:
    first, second = part(topic, 0), part(topic, 1)
    await claim(plane, first)
    claims = await claim_all(plane, new_run(), first, second)
    assert [each.partition for each in claims] == [second]


async def test_a_partition_has_one_claim_however_often_it_is_wished_for(
    plane: ControlPlane, topic: Topic
) -> None:
    wishes = [wish(part(topic), 0, 5), wish(part(topic), 5, 9)]
    [claimed] = await plane.pipeline.claim_ranges(
        new_run(), wishes, duration_ms=LONG_MS, max_attempts=MAX_ATTEMPTS
    )
    assert claimed.end_offset == 5


async def test_a_run_that_asks_again_gets_its_own_claims_under_new_tokens(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key, run = part(topic), new_run()
    before = await claim(plane, key, run)
    after = await claim(plane, key, run)
    assert before != after
    assert await plane.pipeline.renew_claims(run, duration_ms=LONG_MS) == {after}
    assert await attempts_of(database, key) == (0, None, False)


async def test_what_does_not_exist_is_not_claimed(plane: ControlPlane, topic: Topic) -> None:
    gone = await plane.topics.create("gone", partition_count=1, configs={})
    await plane.topics.delete(gone.id)
    beyond = TopicPartition(topic.id, PartitionIndex(3))
    assert await claim_all(plane, new_run(), part(gone), beyond) == []
    assert await claim_all(plane, new_run()) == []


async def test_runs_that_claim_at_once_share_the_partitions(
    plane: ControlPlane, other: ControlPlane
) -> None:
    topic = await plane.topics.create("wide", partition_count=40, configs={})
    keys = [part(topic, index) for index in range(40)]
    answers = await asyncio.gather(
        *(
            claim_all(each, new_run(), *order)
            for each in (plane, other)
            for order in (keys, keys[::-1], keys[7:], keys[:31])
        )
    )
    claimed = [each.partition for answer in answers for each in answer]
    assert sorted(claimed) == keys


# Renewal and the end.


async def test_only_the_claims_of_the_run_that_have_not_expired_are_renewed(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    mine, stranger = new_run(), new_run()
    await claim(plane, part(topic, 0), mine)
    await expire(database)
    alive = await claim(plane, part(topic, 1), mine, duration_ms=5_000)
    await claim(plane, part(topic, 2), stranger)
    assert await plane.pipeline.renew_claims(mine, duration_ms=LONG_MS) == {alive}
    assert await plane.pipeline.renew_claims(new_run(), duration_ms=LONG_MS) == set()
    [(expires_ms, now_ms)] = await database.read(
        lambda connection: connection.fetch(
            "SELECT expires_ms, {now_ms} FROM claims WHERE token = $1", alive
        )
    )
    assert expires_ms - now_ms > 5_000


async def test_a_released_claim_can_be_had_by_others(plane: ControlPlane, topic: Topic) -> None:
    run = new_run()
    token = await claim(plane, part(topic), run)
    await plane.pipeline.release_claims([token])
    assert await plane.pipeline.renew_claims(run, duration_ms=LONG_MS) == set()
    assert await claim(plane, part(topic)) != token


async def test_a_claim_that_expired_at_work_is_taken_over_and_counts_as_a_failure(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key, silent = part(topic), new_run()
    await plane.pipeline.begin_claims([await claim(plane, key, silent)])
    assert await claim_all(plane, new_run(), key) == []
    await expire(database)
    [taken] = await claim_all(plane, new_run(), key)
    assert taken.attempts == 1
    attempts, error, parked = await attempts_of(database, key)
    assert (attempts, parked) == (1, False)
    assert str(silent) in (error or "")


async def test_a_claim_that_expired_before_its_work_began_counts_as_nothing(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    begun, waiting = part(topic, 0), part(topic, 1)
    for number in range(MAX_ATTEMPTS):
        claims = await claim_all(plane, new_run(), begun, waiting)
        assert [each.attempts for each in claims] == [number, 0]
        await plane.pipeline.begin_claims([claims[0].token])
        await expire(database)
    [claimed] = await claim_all(plane, new_run(), begun, waiting)
    assert (claimed.partition, claimed.attempts) == (waiting, 0)
    assert await attempts_of(database, waiting) == (0, None, False)
    assert (await attempts_of(database, begun))[2], "it is parked"


async def test_what_one_holder_began_is_not_held_against_the_next(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    """True if the run gave its claim back, or is known to have died at work."""
    key = part(topic)
    token = await claim(plane, key)
    await plane.pipeline.begin_claims([token])
    await plane.pipeline.release_claims([token], succeeded=False)
    await claim(plane, key)
    await expire(database)
    await plane.pipeline.begin_claims([await claim(plane, key)])
    await expire(database)
    [taken] = await claim_all(plane, new_run(), key)
    assert taken.attempts == 1
    await expire(database)
    [taken] = await claim_all(plane, new_run(), key)
    assert taken.attempts == 1


async def test_a_claim_that_was_lost_does_not_begin(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    late = await claim(plane, key)
    await expire(database)
    await plane.pipeline.begin_claims([late])
    await claim(plane, key)
    await plane.pipeline.begin_claims([late])
    await expire(database)
    [taken] = await claim_all(plane, new_run(), key)
    assert taken.attempts == 0


async def test_the_claims_of_an_older_version_which_notes_no_beginning_are_never_begun(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await plane.pipeline.begin_claims([await claim(plane, key)])
    # It gives its own claim a token and a run, and knows no other columns.
    await change(database, f"UPDATE claims SET token = '{uuid4()}', run_id = '{uuid4()}'")
    await expire(database)
    [taken] = await claim_all(plane, new_run(), key)
    assert taken.attempts == 0


async def test_a_stranger_can_neither_renew_nor_release_nor_fail_a_claim(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    """The stranger is the former holder, who wakes up late."""
    key, late, holder = part(topic), new_run(), new_run()
    old_token = await claim(plane, key, late)
    await plane.pipeline.begin_claims([old_token])
    await expire(database)
    token = await claim(plane, key, holder)
    assert await plane.pipeline.renew_claims(late, duration_ms=LONG_MS) == set()
    await plane.pipeline.release_claims([old_token])
    assert await plane.pipeline.fail_claims({old_token: "late"}, max_attempts=1) == []
    assert await claim_all(plane, new_run(), key) == []
    assert await plane.pipeline.renew_claims(holder, duration_ms=LONG_MS) == {token}
    assert (await attempts_of(database, key))[0] == 1


# Failures.


async def test_failures_in_a_row_park_a_partition_and_success_forgets_them(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    for number in (1, 2):
        errors = {await claim(plane, key): f"bad block {number}\0"}
        assert await plane.pipeline.fail_claims(errors, max_attempts=3) == []
        assert await attempts_of(database, key) == (number, f"bad block {number}", False)
    await plane.pipeline.release_claims([await claim(plane, key)], succeeded=False)
    assert (await attempts_of(database, key))[0] == 2
    await plane.pipeline.release_claims([await claim(plane, key)])
    assert await attempts_of(database, key) == (0, None, False)
    for number in (1, 2, 3):
        parked = await plane.pipeline.fail_claims({await claim(plane, key): "bad"}, max_attempts=3)
        assert parked == ([key] if number == 3 else [])
    assert await claim_all(plane, new_run(), key, part(topic, 1)) != []
    assert await claim_all(plane, new_run(), key) == []


async def test_a_partition_that_silences_its_run_every_time_is_parked(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    for number in range(MAX_ATTEMPTS):
        [taken] = await claim_all(plane, new_run(), key)
        assert taken.attempts == number
        await plane.pipeline.begin_claims([taken.token])
        await expire(database)
    for _ in range(2):
        assert await claim_all(plane, new_run(), key) == []
        attempts, error, parked = await attempts_of(database, key)
        assert (attempts, parked) == (MAX_ATTEMPTS, True)
        assert "went silent" in (error or "")


async def test_a_partition_is_parked_that_has_failed_more_often_than_is_borne_with_now(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    for _ in range(2):
        await plane.pipeline.fail_claims({await claim(plane, key): "bad"}, max_attempts=5)
    assert await claim_all(plane, new_run(), key, max_attempts=2) == []
    assert await attempts_of(database, key) == (2, "bad", True)


async def test_an_unparked_partition_starts_anew(plane: ControlPlane, topic: Topic) -> None:
    keys = [part(topic, index) for index in range(3)]
    tokens = [each.token for each in await claim_all(plane, new_run(), *keys)]
    assert await plane.pipeline.fail_claims(dict.fromkeys(tokens, "bad"), max_attempts=1) == keys
    assert await plane.pipeline.unpark(topic.id, PartitionIndex(1)) == 1
    assert [each.partition for each in await claim_all(plane, new_run(), *keys)] == [keys[1]]
    assert await plane.pipeline.unpark(topic.id) == 2
    claims = await claim_all(plane, new_run(), *keys)
    assert [(each.partition, each.attempts) for each in claims] == [(keys[0], 0), (keys[2], 0)]


async def test_parked_partitions_are_claimed_when_asked_for_but_not_for_ever(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await plane.pipeline.fail_claims({await claim(plane, key): "bad"}, max_attempts=1)
    await plane.pipeline.release_claims([await claim(plane, key, also_parked=True)])
    assert await attempts_of(database, key) == (1, "bad", True)
    token = await claim(plane, key, also_parked=True, max_attempts=1)
    assert await plane.pipeline.fail_claims({token: "worse"}, max_attempts=1) == []
    assert await attempts_of(database, key) == (2, "worse", True)
    assert await claim_all(plane, new_run(), key, also_parked=True, max_attempts=1) == []
    token = await claim(plane, key, also_parked=True, max_attempts=2)
    await plane.pipeline.begin_claims([token])
    await expire(database)
    assert await claim_all(plane, new_run(), key, also_parked=True, max_attempts=1) == []
    assert (await attempts_of(database, key))[0] == 3


async def failed_ms_of(database: Database, key: TopicPartition) -> int | None:
    [(failed_ms,)] = await database.read(
        lambda connection: connection.fetch(
            "SELECT failed_ms FROM claims WHERE topic_id = $1 AND partition = $2", *key
        )
    )
    return None if failed_ms is None else int(failed_ms)


async def test_a_failure_that_is_not_counted_leaves_a_trace_until_a_success(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key, other = part(topic, 0), part(topic, 1)
    claims = await claim_all(plane, new_run(), key, other)
    await plane.pipeline.begin_claims([each.token for each in claims])
    await plane.pipeline.put_back_claims([claims[0].token])
    await plane.pipeline.release_claims([claims[1].token], succeeded=False)
    assert await failed_ms_of(database, other) is None
    failed_ms = await failed_ms_of(database, key)
    [(now_ms,)] = await database.read(lambda connection: connection.fetch("SELECT {now_ms}"))
    assert failed_ms is not None
    assert 0 <= now_ms - failed_ms < LONG_MS
    assert await attempts_of(database, key) == (0, None, False)
    await plane.pipeline.release_claims([await claim(plane, key)], succeeded=False)
    assert await failed_ms_of(database, key) == failed_ms
    await plane.pipeline.release_claims([await claim(plane, key)])
    assert await failed_ms_of(database, key) is None


async def test_only_a_success_counts_as_a_turn(plane: ControlPlane, topic: Topic) -> None:
    key = part(topic)
    await commit(plane, batch(key))

    async def done_ms() -> int | None:
        [found] = await plane.pipeline.aged_partitions({topic.id: 0})
        return found.done_ms

    await plane.pipeline.release_claims([await claim(plane, key)], succeeded=False)
    await plane.pipeline.put_back_claims([await claim(plane, key)])
    await plane.pipeline.fail_claims({await claim(plane, key): "bad"}, max_attempts=3)
    assert await done_ms() is None
    await plane.pipeline.release_claims([await claim(plane, key)])
    done = await done_ms()
    assert done is not None
    await plane.pipeline.put_back_claims([await claim(plane, key)])
    assert await done_ms() == done


async def test_a_failure_that_is_not_counted_forgets_none_that_was(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await plane.pipeline.fail_claims({await claim(plane, key): "bad"}, max_attempts=3)
    assert await failed_ms_of(database, key) is not None
    await plane.pipeline.put_back_claims([await claim(plane, key)])
    assert await attempts_of(database, key) == (1, "bad", False)


async def test_the_trace_of_a_parked_partition_goes_when_it_is_unparked(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await plane.pipeline.fail_claims({await claim(plane, key): "bad"}, max_attempts=1)
    await plane.pipeline.release_claims([await claim(plane, key, also_parked=True)])
    assert await failed_ms_of(database, key) is not None
    await plane.pipeline.unpark(topic.id)
    assert await failed_ms_of(database, key) is None


async def test_a_stranger_cannot_put_a_claim_back(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key, holder = part(topic), new_run()
    late = await claim(plane, key)
    await expire(database)
    token = await claim(plane, key, holder)
    await plane.pipeline.put_back_claims([late])
    assert await plane.pipeline.renew_claims(holder, duration_ms=LONG_MS) == {token}
    assert await failed_ms_of(database, key) is None
