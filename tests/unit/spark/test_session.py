"""The settings of our session, and the imports of a process that looks for data sources."""

import subprocess
import sys

import pytest
from pyspark.sql.datasource import DataSource

import pyspark_stratalog
import stratalog.spark
from stratalog.spark.session import session_options

DAEMON = "spark.python.daemon.module"


def conf(master: str = "local[2]", **given: str) -> dict[str, str]:
    dotted = {key.replace("_", "."): value for key, value in given.items()}
    return dict(session_options(master, app_name="x", conf=dotted, ui=False).conf)


def test_a_session_compiles_its_queries() -> None:
    for master in ("local[2]", "spark://a:7077", "sc://a"):
        assert conf(master)["spark.sql.codegen.wholeStage"] == "true"


def test_workers_of_this_machine_are_forked_from_a_daemon_that_can_read_topics() -> None:
    assert conf()[DAEMON] == "stratalog.spark.daemon"
    assert DAEMON not in conf("spark://a:7077")
    assert DAEMON not in conf("sc://a")


def test_what_a_user_sets_wins() -> None:
    assert conf(spark_python_daemon_module="pyspark.daemon")[DAEMON] == "pyspark.daemon"


def test_spark_finds_a_data_source_by_its_package() -> None:
    assert pyspark_stratalog.__all__ == ["DefaultSource"]
    assert issubclass(pyspark_stratalog.DefaultSource, DataSource)
    assert pyspark_stratalog.DefaultSource.name() == "stratalog"


def test_looking_for_data_sources_loads_neither_a_compiler_nor_a_database() -> None:
    heavy = "{'numba', 'asyncpg', 'obstore', 'grpc', 'stratalog.pipeline'}"
    script = f"import sys, pyspark_stratalog; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == b"[]\n"


def test_the_room_offers_its_two_calls_and_nothing_else() -> None:
    assert callable(stratalog.spark.open_session)
    assert callable(stratalog.spark.read_topic)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        stratalog.spark.nothing  # noqa: B018


def test_a_local_jvm_compiles_what_it_runs_for_long_and_obeys_the_user() -> None:
    conf = {"spark.driver.extraJavaOptions": "-Xmx3g"}
    options = session_options("local[2]", app_name="app", conf=conf, ui=False)
    given = options.conf["spark.driver.extraJavaOptions"]
    assert "-XX:TieredStopAtLevel=4" in given
    assert given.endswith("-Xmx3g")
