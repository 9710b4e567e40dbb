"""Writers: their announcement, the count of their commits, and the halt of the cluster."""

import pytest
from tests.contract.control.building import batch, block, part

from stratalog.control.identity.ledger import RESTORE_JUMP
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database
from stratalog.control.topics.model import Topic
from stratalog.control.writers.errors import (
    ControlPlaneHaltedError,
    ControlPlaneWentBackError,
    WriterEndedError,
    WriterRefusedError,
)
from stratalog.control.writers.model import CommitCount, WriterKind
from stratalog.ids import BrokerId, WriterTag

TAG = WriterTag(0xABCDEF0123)


def count(commits: int, *, unsettled: int = 0, tag: WriterTag = TAG) -> CommitCount:
    return CommitCount(tag=tag, least=commits, most=commits + unsettled)


async def announced(plane: ControlPlane, tag: WriterTag = TAG) -> None:
    await plane.writers.announce(tag, WriterKind.BROKER, BrokerId(3))


async def commit(plane: ControlPlane, topic: Topic, counted: CommitCount) -> int:
    [[answer]] = await plane.log.commit_blocks([block(batch(part(topic)))], counted)
    return answer.base_offset


async def commits(plane: ControlPlane, tag: WriterTag = TAG) -> int:
    return (await plane.writers.known([tag]))[tag].commits


async def sql(database: Database, statement: str, *args: object) -> None:
    await database.write(lambda connection: connection.execute(statement, *args))


async def high_watermark(plane: ControlPlane, topic: Topic) -> int:
    return (await plane.log.high_watermarks([part(topic)]))[part(topic)]


async def test_the_count_of_a_writer_is_checked_without_a_commit(
    plane: ControlPlane, topic: Topic
) -> None:
    with pytest.raises(ControlPlaneWentBackError):
        await plane.writers.check(count(0))
    await announced(plane)
    await commit(plane, topic, count(0))
    for known in (0, 1):
        await plane.writers.check(count(known))
    assert await commits(plane) == 1
    with pytest.raises(ControlPlaneWentBackError):
        await plane.writers.check(count(2))
    await plane.identity.halt("a test.")
    with pytest.raises(ControlPlaneHaltedError):
        await plane.writers.check(count(1))


async def test_a_writer_is_known_from_its_announcement_to_its_end(plane: ControlPlane) -> None:
    assert await plane.writers.known([TAG]) == {}
    await announced(plane)
    await announced(plane)
    [writer] = await plane.writers.all()
    assert (writer.tag, writer.kind, writer.broker_id) == (TAG, WriterKind.BROKER, 3)
    assert (writer.name, writer.ended_ms, writer.commits) == ("abcdef0123", None, 0)
    await plane.writers.end(TAG)
    ended = (await plane.writers.known([TAG]))[TAG].ended_ms
    assert ended is not None
    await announced(plane)
    assert (await plane.writers.known([TAG]))[TAG].ended_ms == ended
    assert await plane.writers.forget(older_than_ms=60_000) == 0
    assert await plane.writers.forget(older_than_ms=-1) == 1


async def test_a_broker_that_was_killed_is_not_forgotten_and_a_sink_is(
    plane: ControlPlane,
) -> None:
    await announced(plane)
    await plane.writers.announce(WriterTag(2), WriterKind.SINK)
    assert await plane.writers.forget(older_than_ms=-1) == 1
    assert set(await plane.writers.known([TAG, WriterTag(2)])) == {TAG}


async def test_each_commit_is_counted_in_its_transaction(plane: ControlPlane, topic: Topic) -> None:
    await announced(plane)
    await announced(plane, WriterTag(2))
    assert await commit(plane, topic, count(0)) == 0
    assert await commit(plane, topic, count(0, tag=WriterTag(2))) == 1
    assert await commit(plane, topic, count(1)) == 2
    assert (await commits(plane), await commits(plane, WriterTag(2))) == (2, 1)


async def test_a_commit_that_is_repeated_is_counted_once(plane: ControlPlane, topic: Topic) -> None:
    await announced(plane)
    again = block(batch(part(topic)))
    first = await plane.log.commit_blocks([again], count(0))
    assert await plane.log.commit_blocks([again], count(0)) == first
    assert await commits(plane) == 1


@pytest.mark.parametrize("statement", ["UPDATE writers SET commits = 1", "DELETE FROM writers"])
async def test_a_control_plane_that_forgot_commits_takes_no_further_one(
    plane: ControlPlane, topic: Topic, database: Database, statement: str
) -> None:
    await announced(plane)
    assert await commit(plane, topic, count(0)) == 0
    assert await commit(plane, topic, count(1)) == 1
    await sql(database, statement)
    with pytest.raises(ControlPlaneWentBackError, match="writer abcdef0123, which has made 2"):
        await commit(plane, topic, count(2))
    assert await high_watermark(plane, topic) == 2


@pytest.mark.parametrize("statement", ["UPDATE writers SET commits = 1", "DELETE FROM writers"])
async def test_a_control_plane_that_forgot_commits_settles_no_doubt(
    plane: ControlPlane, topic: Topic, database: Database, statement: str
) -> None:
    await announced(plane)
    doubtful = block(batch(part(topic)))
    assert await commit(plane, topic, count(0)) == 0
    assert await commit(plane, topic, count(1)) == 1
    await sql(database, statement)
    with pytest.raises(ControlPlaneWentBackError, match="writer abcdef0123, which has made 2"):
        await plane.log.resolve_commit([doubtful], count(2))
    # No tombstone stays behind.
    assert await plane.objects.sizes([doubtful.object_id]) == {}


async def test_a_halted_cluster_settles_no_doubt(plane: ControlPlane, topic: Topic) -> None:
    await announced(plane)
    doubtful = block(batch(part(topic)))
    await plane.log.commit_blocks([doubtful], count(0))
    await plane.identity.halt("the control plane went back.")
    with pytest.raises(ControlPlaneHaltedError):
        await plane.log.resolve_commit([doubtful], count(0))


async def test_a_doubt_is_settled_by_the_writer_that_has_it(
    plane: ControlPlane, topic: Topic
) -> None:
    await announced(plane)
    happened, lost = block(batch(part(topic))), block(batch(part(topic)))
    answers = await plane.log.commit_blocks([happened], count(0))
    assert await plane.log.resolve_commit([happened], count(0)) == answers
    assert await plane.log.resolve_commit([lost], count(1)) is None
    assert await commits(plane) == 1


async def test_a_doubt_that_was_not_settled_widens_the_count(
    plane: ControlPlane, topic: Topic
) -> None:
    await announced(plane)
    assert await commit(plane, topic, count(0)) == 0
    assert await commit(plane, topic, count(0, unsettled=1)) == 1
    with pytest.raises(WriterEndedError, match="another process uses its tag"):
        await commit(plane, topic, count(0, unsettled=1))
    assert await commits(plane) == 2


async def test_an_ended_writer_commits_nothing(plane: ControlPlane, topic: Topic) -> None:
    await announced(plane)
    await plane.writers.end(TAG)
    with pytest.raises(WriterEndedError, match="it was ended"):
        await commit(plane, topic, count(0))
    assert await high_watermark(plane, topic) == 0


async def test_a_halted_cluster_takes_no_commit_until_an_operator_accepts(
    plane: ControlPlane, topic: Topic
) -> None:
    await announced(plane)
    first = await plane.log.allocate_producer_ids(1)
    await plane.identity.halt("the control plane went back.")
    await plane.identity.halt("another reason")
    cluster = await plane.identity.cluster()
    assert cluster.halted_reason == "the control plane went back."
    assert cluster.halted_ms is not None
    with pytest.raises(ControlPlaneHaltedError, match="run `stratalog control accept`"):
        await commit(plane, topic, count(0))
    await plane.identity.accept()
    assert (await plane.identity.cluster()).halted_reason is None
    assert await plane.log.allocate_producer_ids(1) == first + 1 + 2 * RESTORE_JUMP
    with pytest.raises(WriterRefusedError, match="it was ended"):
        await commit(plane, topic, count(0))
    await announced(plane, WriterTag(2))
    assert await commit(plane, topic, count(0, tag=WriterTag(2))) == 0
