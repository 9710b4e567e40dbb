"""Doubt about a commit, and tombstones."""

import asyncio

import pytest
from tests.contract.control.building import batch, block, change, part, rows_of, state_of

from stratalog.control.log.errors import AnswersForgottenError, CommitMismatchError
from stratalog.control.objects.errors import BarredObjectError
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database
from stratalog.control.topics.model import Topic


async def test_resolving_a_commit_that_took_effect_returns_its_answers(
    plane: ControlPlane, topic: Topic
) -> None:
    blocks = [block(batch(part(topic), 2), batch(part(topic, 9))), block(batch(part(topic)))]
    answers = await plane.log.commit_blocks(blocks)
    assert await plane.log.resolve_commit(blocks) == answers
    assert await plane.log.resolve_commit(blocks[::-1]) == answers[::-1]


async def test_resolving_a_commit_that_did_not_bars_it_for_ever(
    plane: ControlPlane, topic: Topic
) -> None:
    blocks = [block(batch(part(topic))), block(batch(part(topic)))]
    assert await plane.log.resolve_commit(blocks) is None
    assert await plane.log.resolve_commit(blocks) is None
    with pytest.raises(BarredObjectError):
        await plane.log.commit_blocks(blocks)
    assert (await state_of(plane, part(topic))).high_watermark == 0
    assert await rows_of(plane, part(topic)) == []


async def test_a_commit_with_one_barred_object_changes_nothing(
    plane: ControlPlane, topic: Topic
) -> None:
    barred, fresh = block(batch(part(topic))), block(batch(part(topic)))
    await plane.objects.bar({barred.object_id: barred.key})
    with pytest.raises(BarredObjectError):
        await plane.log.commit_blocks([barred, fresh])
    assert (await state_of(plane, part(topic))).high_watermark == 0
    assert await plane.objects.all(limit=10) == []


async def test_commit_and_tombstone_racing_agree_on_one_outcome(
    plane: ControlPlane, other: ControlPlane, topic: Topic
) -> None:
    committed = 0
    for _ in range(15):
        blocks = [block(batch(part(topic)))]
        results = await asyncio.gather(
            plane.log.commit_blocks(blocks),
            other.log.resolve_commit(blocks),
            return_exceptions=True,
        )
        if isinstance(results[0], BarredObjectError):
            assert results[1] is None
        else:
            assert results[0] == results[1]
            committed += 1
    assert (await state_of(plane, part(topic))).high_watermark == committed


async def test_objects_of_different_commits_cannot_be_resolved_together(
    plane: ControlPlane, topic: Topic
) -> None:
    known, fresh = block(batch(part(topic))), block(batch(part(topic)))
    await plane.log.commit_blocks([known])
    with pytest.raises(CommitMismatchError):
        await plane.log.resolve_commit([known, fresh])
    # Nothing was barred by the failed attempt.
    assert len(await plane.log.commit_blocks([fresh])) == 1


async def test_answers_are_kept_until_they_are_forgotten(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    old, young = [block(batch(part(topic)))], [block(batch(part(topic)))]
    await plane.log.commit_blocks(old)
    await plane.log.commit_blocks(young)
    await change(
        database,
        "UPDATE objects SET committed_ms = committed_ms - 10000 WHERE object_id = $1",
        old[0].object_id,
    )
    assert await plane.log.forget_answers(older_than_ms=20_000) == 0
    assert await plane.log.forget_answers(older_than_ms=5_000) == 1
    with pytest.raises(AnswersForgottenError):
        await plane.log.resolve_commit(old)
    assert await plane.log.resolve_commit(young) is not None


async def test_an_object_that_is_gone_answers_for_its_commit_while_doubt_may_last(
    plane: ControlPlane, topic: Topic
) -> None:
    blocks = [block(batch(part(topic, 9)))]
    answers = await plane.log.commit_blocks(blocks)
    await plane.objects.forget([blocks[0].object_id])
    assert await plane.objects.marked(grace_ms=0, limit=10) == []
    assert await plane.objects.all(limit=10) == []
    assert await plane.log.resolve_commit(blocks) == answers
    await plane.log.forget_answers(older_than_ms=-1000)
    assert await plane.log.resolve_commit(blocks) is None
