"""A round of the janitor on a real control plane and store."""

from tests.integration.small_cluster import SmallCluster

from stratalog.checks.fsck import run_fsck
from stratalog.control.topics.model import Topic
from stratalog.ids import Offset, PartitionIndex, TopicPartition
from stratalog.janitor.retention import Retention
from stratalog.janitor.service import Janitor
from stratalog.settings import DAY_MS, JanitorSettings


def janitor_of(cluster: SmallCluster, retention: Retention, backup_window_ms: int = 0) -> Janitor:
    return Janitor(
        control=cluster.control,
        store=cluster.store,
        retention_of=lambda topic: retention,
        settings=JanitorSettings(
            grace_ms=0,
            backup_window_ms=backup_window_ms,
            deleted_topic_window_ms=0,
            answers_ms=0,
            chunk_rows=3,
        ),
        offsets_retention_ms=1000,
        clock=cluster.later,
    )


async def test_the_janitor_keeps_what_is_wanted_and_removes_the_rest(
    cluster: SmallCluster, topic: Topic
) -> None:
    doomed = await cluster.topic("doomed")
    for _ in range(4):
        await cluster.write(topic, {0: [5]})
        await cluster.write(doomed, {0: [5], 1: [1]})
    await cluster.upload(topic, {0: [1]})
    newest = await cluster.write(topic, {0: [5]})
    await cluster.control.topics.delete(doomed.id)
    size_bytes = newest.commit.batches[0].byte_size
    outcomes = await janitor_of(cluster, Retention(ms=None, bytes=size_bytes)).run_once()
    assert {outcome.error for outcome in outcomes} == {None}
    removing = [*outcomes[:3], outcomes[5]]
    assert {outcome.name: outcome.done for outcome in removing} == {
        "retention": 4,
        "topic purge": 8,
        "deletion": 8,
        "sweep": 1,
    }
    assert await cluster.keys() == [newest.commit.key]
    report = await run_fsck(cluster.control, cluster.store, deep=True, clock=cluster.later)
    assert report.ok


async def test_a_lease_keeps_what_it_saw(cluster: SmallCluster, topic: Topic) -> None:
    block = await cluster.write(topic, {0: [5]})
    lease = await cluster.control.scans.take_lease("a scan", duration_ms=60_000)
    partition = TopicPartition(topic.id, PartitionIndex(0))
    await cluster.control.log.delete_records({partition: Offset(-1)})
    janitor = janitor_of(cluster, Retention(ms=None, bytes=None))
    await janitor.run_once()
    assert await cluster.keys() == [block.commit.key]
    await cluster.control.scans.release_lease(lease.lease_id)
    await janitor.run_once()
    assert await cluster.keys() == []


async def test_objects_that_were_freed_are_kept_for_the_window_of_backups(
    cluster: SmallCluster, topic: Topic
) -> None:
    block = await cluster.write(topic, {0: [5]})
    await cluster.write(topic, {0: [5]})
    keep_nothing = Retention(ms=0, bytes=0)
    await janitor_of(cluster, keep_nothing, backup_window_ms=DAY_MS).run_once()
    state = await cluster.control.log.topic_partitions(topic.id)
    assert state[0].log_start == state[0].high_watermark
    assert block.commit.key in await cluster.keys()
    # Marks are made by the clock of the database, and compared with it.
    cluster.damage(f"UPDATE objects SET marked_ms = marked_ms - {DAY_MS}")
    await janitor_of(cluster, keep_nothing, backup_window_ms=DAY_MS).run_once()
    assert await cluster.keys() == []


async def test_rows_that_a_delete_left_below_the_start_go_though_the_topic_keeps_everything(
    cluster: SmallCluster, topic: Topic
) -> None:
    for _ in range(3):
        await cluster.write(topic, {0: [5]})
    # As after a crash between moving the boundary and removing the rows.
    cluster.damage(
        "UPDATE partitions SET log_start = 10, block_start = 10, remote_end = 10 "
        "WHERE partition = 0"
    )
    await janitor_of(cluster, Retention(ms=None, bytes=None)).run_once()
    assert len(await cluster.keys()) == 1
