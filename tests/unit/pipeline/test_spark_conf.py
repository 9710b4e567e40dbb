from pathlib import Path

import pytest

from stratalog.pipeline.errors import BadMasterError
from stratalog.pipeline.hosting.spark_conf import (
    DAEMON_MODULE,
    SMALL_JVM,
    Place,
    SparkOptions,
    classic_conf,
    jvm_conf,
    place_of,
    runtime_conf,
)

LOG4J = Path("/tmp/log4j2.properties")
JAVA_OPTIONS = "spark.driver.extraJavaOptions"


@pytest.mark.parametrize(
    ("master", "place"),
    [
        (None, Place.SUBMITTED),
        ("local", Place.LOCAL),
        ("local[*]", Place.LOCAL),
        ("local[4]", Place.LOCAL),
        ("local[4,3]", Place.LOCAL),
        ("local-cluster[2,1,1024]", Place.CLUSTER),
        ("spark://a:7077,b:7077", Place.CLUSTER),
        ("yarn", Place.CLUSTER),
        ("k8s://https://host:443", Place.CLUSTER),
        ("sc://host:15002/;token=x", Place.CONNECT),
    ],
)
def test_a_master_says_where_jobs_run(master: str | None, place: Place) -> None:
    assert place_of(master) is place


@pytest.mark.parametrize("master", ["", "local[0]", "local[]", "locl[2]", "spark://", "http://x"])
def test_a_master_that_leads_nowhere_is_refused(master: str) -> None:
    with pytest.raises(BadMasterError, match="local\\[4\\], spark://host:port"):
        place_of(master)


@pytest.mark.parametrize(
    ("master", "given_to_spark"),
    [
        ("local", "local[1,2]"),
        ("local[*]", "local[*,2]"),
        ("local[3]", "local[3,2]"),
        ("local[3,1]", "local[3,1]"),
    ],
)
def test_local_tasks_are_tried_twice_unless_the_master_says_how_often(
    master: str, given_to_spark: str
) -> None:
    assert classic_conf(SparkOptions(master=master))["spark.master"] == given_to_spark


def test_a_local_session_is_private_quiet_and_quick() -> None:
    conf = classic_conf(SparkOptions(master="local[2]"))
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert conf["spark.ui.enabled"] == "false"
    assert conf["spark.python.unix.domain.socket.enabled"] == "true"
    assert conf["spark.python.daemon.module"] == DAEMON_MODULE


def test_a_jvm_of_ours_logs_where_it_is_told_and_starts_small_if_local() -> None:
    local = jvm_conf(SparkOptions(master="local[2]"), LOG4J)[JAVA_OPTIONS]
    cluster = jvm_conf(SparkOptions(master="spark://h:1"), LOG4J)[JAVA_OPTIONS]
    assert cluster == "-Dlog4j2.configurationFile=file:///tmp/log4j2.properties"
    assert local == f"{cluster} {SMALL_JVM}"


def test_a_cluster_is_not_told_to_listen_on_the_loopback_interface() -> None:
    conf = classic_conf(SparkOptions(master="spark://host:7077"))
    assert "spark.driver.bindAddress" not in conf
    assert "spark.python.daemon.module" not in conf


@pytest.mark.parametrize(("master", "preload"), [("local[2]", False), ("spark://h:1", True)])
def test_preloading_can_be_switched(master: str, preload: bool) -> None:
    conf = classic_conf(SparkOptions(master=master, preload=preload))
    assert ("spark.python.daemon.module" in conf) is preload


def test_what_the_user_sets_wins() -> None:
    wish = {"spark.ui.enabled": "true", "spark.sql.adaptive.enabled": "true"}
    options = SparkOptions(master="local[2]", conf=wish)
    assert wish.items() <= classic_conf(options).items()
    assert wish.items() <= runtime_conf(options).items()


def test_java_options_of_the_user_come_after_ours() -> None:
    options = SparkOptions(master="local[2]", conf={JAVA_OPTIONS: "-XX:+UseG1GC"})
    given = jvm_conf(options, LOG4J)[JAVA_OPTIONS]
    assert given.startswith("-Dlog4j2")
    assert given.endswith(" -XX:+UseG1GC")


def test_under_spark_submit_the_master_and_the_jvm_are_not_ours_to_set() -> None:
    conf = classic_conf(SparkOptions(master=None))
    assert "spark.master" not in conf
    assert JAVA_OPTIONS not in conf


def test_what_executors_need_is_shipped() -> None:
    options = SparkOptions(
        master="spark://h:1", archives=["a.tar.gz#environment"], py_files=["b.zip", "c.py"]
    )
    conf = classic_conf(options)
    assert conf["spark.archives"] == "a.tar.gz#environment"
    assert conf["spark.submit.pyFiles"] == "b.zip,c.py"


def test_a_connect_server_is_told_which_python_to_run() -> None:
    options = SparkOptions(master="sc://h", python="environment/bin/python")
    assert runtime_conf(options)["spark.sql.execution.pyspark.python"] == options.python
