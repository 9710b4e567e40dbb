"""Kafka's own command line tools, for the cases in which scripts depend on the exact answer."""

import json
import subprocess
from pathlib import Path

import pytest
from bench.kafka.maven import classpath
from confluent_kafka import Consumer, TopicPartition
from tests.compat.conftest import ONE
from tests.support.clusters import Cluster, create, fresh_topic
from tests.support.kafkas_jars import needs_kafkas_jars

TOOLS = "org.apache.kafka.tools"
TOPICS = f"{TOOLS}.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"
TOOL_SECONDS = 120

pytestmark = [needs_kafkas_jars, pytest.mark.parametrize("cluster", [ONE], indirect=True)]


def run(program: str, *arguments: str) -> tuple[int, str]:
    """Run a tool. Return its exit code and its output."""
    # The first compiler alone: a tool ends before the second one pays.
    command = ["java", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command += ["-cp", classpath(), program, *arguments]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TOOL_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout


def ask(cluster: Cluster, program: str, *arguments: str) -> str:
    code, said = run(program, "--bootstrap-server", cluster.bootstrap, *arguments)
    assert code == 0, said
    return said


def test_replicas_are_placed_by_hand_and_an_existing_topic_is_told_before_a_wrong_placement(
    cluster: Cluster,
) -> None:
    topic = fresh_topic("placed")
    at = ("--bootstrap-server", cluster.bootstrap, "--create", "--topic", topic)
    assert run(TOPICS, *at, "--replica-assignment", "0,0")[0] == 0
    assert "PartitionCount: 2" in ask(cluster, TOPICS, "--describe", "--topic", topic)
    code, said = run(TOPICS, *at, "--replica-assignment", "5:9")
    assert (code, f"topic '{topic}' exists" in said) == (1, True), said
    assert ask(cluster, TOPICS, "--create", "--if-not-exists", "--topic", topic) == ""


def test_a_reassignment_with_a_throttle_is_verified(cluster: Cluster, tmp_path: Path) -> None:
    topic = create(cluster, fresh_topic("moved"))
    plan = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [0]}]}
    (tmp_path / "plan").write_text(json.dumps(plan))
    named = ("--reassignment-json-file", str(tmp_path / "plan"))
    ask(cluster, REASSIGN, "--execute", "--throttle", "1000", *named)
    assert f"{topic}-0 is completed" in ask(cluster, REASSIGN, "--verify", *named)


def test_features_are_printed(cluster: Cluster) -> None:
    assert "group.version" in ask(cluster, f"{TOOLS}.FeatureCommand", "describe")


def test_configs_of_a_group_are_changed_and_described(cluster: Cluster) -> None:
    group = ("--entity-type", "groups", "--entity-name", fresh_topic("group"))
    name = "consumer.session.timeout.ms"
    ask(cluster, CONFIGS, "--alter", *group, "--add-config", f"{name}=50000")
    assert f"{name}=50000 " in ask(cluster, CONFIGS, "--describe", *group)
    ask(cluster, CONFIGS, "--alter", *group, "--delete-config", name)
    assert f"{name}=45000 " in ask(cluster, CONFIGS, "--describe", "--all", *group)


def test_configs_of_a_broker_have_the_pause_of_the_log_cleaner(cluster: Cluster) -> None:
    broker = ("--entity-type", "brokers", "--entity-name", "0")
    assert "log.cleaner.backoff.ms=15000 " in ask(cluster, CONFIGS, "--describe", "--all", *broker)


def test_a_group_without_its_last_offset_is_listed_and_deleted(cluster: Cluster) -> None:
    topic, group = create(cluster, fresh_topic("read")), fresh_topic("group")
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()
    ask(cluster, GROUPS, "--delete-offsets", "--group", group, "--topic", topic)
    assert group in ask(cluster, GROUPS, "--list")
    assert "successful" in ask(cluster, GROUPS, "--delete", "--group", group)
    assert group not in ask(cluster, GROUPS, "--list")


def test_a_transactional_producer_hears_of_transactions_and_not_of_authorization(
    cluster: Cluster,
) -> None:
    load = ["--topic", create(cluster, fresh_topic("t")), "--num-records", "1"]
    load += ["--record-size", "10", "--throughput", "-1", "--transactional-id", "t"]
    load += ["--producer-props", f"bootstrap.servers={cluster.bootstrap}"]
    code, said = run(f"{TOOLS}.ProducerPerformance", *load)
    assert code == 1
    assert "does not support transactions yet" in said
    assert "uthoriz" not in said
