"""The janitor goes by the settings that the cluster shares, and lowered retention is forgiven."""

import logging

import pytest
from tests.integration.small_cluster import SmallCluster

from stratalog.control.sql.database import Connection
from stratalog.control.topics.model import Topic
from stratalog.janitor.retention import Retention
from stratalog.janitor.service import Janitor, Rules
from stratalog.opening.cluster_settings import ClusterSettings
from stratalog.settings import DAY_MS, JanitorSettings, Settings
from stratalog.topic.janitor_rules import rules_of

NOTHING = {"retention.bytes": "0", "retention.ms": "-1"}
"""All records may go. The times of the tests' records play no part."""
EVERYTHING = {"retention.bytes": "-1", "retention.ms": "-1"}


async def started(cluster: SmallCluster, settings: Settings) -> Janitor:
    """Return the janitor of a broker that starts with these settings."""
    shared = ClusterSettings(cluster.control, settings)
    await shared.found(by="test")

    async def rules() -> Rules:
        return rules_of(await shared.read())

    return Janitor(
        control=cluster.control,
        store=cluster.store,
        retention_of=lambda topic: Retention(ms=0, bytes=0),
        settings=settings.janitor,
        offsets_retention_ms=1,
        clock=cluster.later,
        rules=rules,
    )


async def written(cluster: SmallCluster, topic: Topic) -> None:
    for _ in range(3):
        await cluster.write(topic, {0: [5]})


async def log_start(cluster: SmallCluster, topic: Topic) -> int:
    return (await cluster.control.log.topic_partitions(topic.id))[0].log_start


async def pass_a_day(cluster: SmallCluster) -> None:
    async def work(connection: Connection) -> None:
        rows = await connection.fetch("SELECT earlier_retention FROM topics")
        for (text,) in rows:
            assert text is not None
        await connection.execute("UPDATE topics SET earlier_retention = NULL")

    await cluster.control.topics._database.write(work)


async def test_a_broker_with_another_retention_deletes_nothing_and_is_told(
    cluster: SmallCluster, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    await written(cluster, topic)
    await started(cluster, Settings(topic=EVERYTHING))
    second = await started(cluster, Settings(topic=NOTHING))
    assert "topic.retention.bytes is 0 here and -1 in the cluster" in caplog.text
    assert "stratalog cluster config set topic.retention.bytes 0" in caplog.text
    caplog.clear()
    await second.run_once()
    assert await log_start(cluster, topic) == 0
    assert "left out retention" in caplog.text


async def test_a_broker_with_other_times_leaves_out_the_steps_that_go_by_them(
    cluster: SmallCluster, topic: Topic
) -> None:
    await written(cluster, topic)
    await cluster.upload(topic, {0: [1]})
    await started(cluster, Settings())
    hasty = JanitorSettings(
        grace_ms=0, backup_window_ms=0, orphan_age_ms=0, deleted_topic_window_ms=0
    )
    janitor = await started(cluster, Settings(janitor=hasty))
    await cluster.control.topics.delete(topic.id)
    keys = await cluster.keys()
    outcomes = await janitor.run_once()
    # Writers that have ended and left nothing are forgotten by no setting.
    assert {outcome.name for outcome in outcomes if outcome.done} <= {
        "writer expiry",
        "deletion note expiry",
    }
    assert await cluster.keys() == keys
    await cluster.control.topics.undelete(topic.id, topic.name)


async def test_a_broker_without_a_value_of_its_own_takes_the_clusters(
    cluster: SmallCluster, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    await written(cluster, topic)
    await started(cluster, Settings(topic=NOTHING))
    with caplog.at_level(logging.WARNING):
        janitor = await started(cluster, Settings())
    assert caplog.messages == []
    await janitor.run_once()
    assert await log_start(cluster, topic) == 15


async def test_a_running_broker_follows_a_changed_setting_when_its_window_has_passed(
    cluster: SmallCluster, topic: Topic
) -> None:
    await written(cluster, topic)
    janitor = await started(cluster, Settings(topic=EVERYTHING))
    change = cluster.control.settings.change
    await change("topic.retention.bytes", "0", by="test")
    await janitor.run_once()
    assert await log_start(cluster, topic) == 0
    await change("janitor.retention_window_ms", "0", by="test")
    await janitor.run_once()
    assert await log_start(cluster, topic) == 15


async def test_retention_that_is_raised_back_within_the_window_loses_nothing(
    cluster: SmallCluster, topic: Topic
) -> None:
    await written(cluster, topic)
    janitor = await started(cluster, Settings(topic=EVERYTHING))
    for configs in (NOTHING, {"retention.bytes": "5"}, {"retention.bytes": None}):
        await cluster.control.topics.set_configs(topic.id, configs)
        await janitor.run_once()
        assert await log_start(cluster, topic) == 0
    await cluster.control.topics.set_configs(topic.id, NOTHING)
    await pass_a_day(cluster)
    await janitor.run_once()
    assert await log_start(cluster, topic) == 15


async def test_without_a_window_a_lowered_retention_counts_at_once(
    cluster: SmallCluster, topic: Topic
) -> None:
    await written(cluster, topic)
    settings = JanitorSettings(retention_window_ms=0)
    janitor = await started(cluster, Settings(topic=EVERYTHING, janitor=settings))
    await cluster.control.topics.set_configs(topic.id, NOTHING)
    await janitor.run_once()
    assert await log_start(cluster, topic) == 15
    assert settings.deleted_topic_window_ms == DAY_MS
