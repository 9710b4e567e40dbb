"""Fixtures that every suite shares: real servers, started when the first test asks for one."""

import logging
import signal
from collections.abc import Iterator

import pytest
from tests.support.guardian import be_guarded
from tests.support.servers import PostgresServer, S3Server, run_postgres, run_s3_server
from tests.support.spark import SharedSpark, run_spark_cluster

from stratalog.logs import RepeatFilter
from stratalog.pipeline.hosting.session import OpenSpark, open_session
from stratalog.pipeline.hosting.spark_conf import SparkOptions

# A shell that starts us in the background has us ignore Ctrl-C, and with us all that we start. Some
# tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

be_guarded()


@pytest.fixture(autouse=True)
def logs_without_set_up() -> Iterator[None]:
    """Take back the set-up of logs that a command made in this process.

    Its filter remembers the lines of earlier tests, and changes later ones for every handler.
    """
    yield
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if any(isinstance(one, RepeatFilter) for one in handler.filters):
            root.removeHandler(handler)
            logging.getLogger("stratalog").setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with run_s3_server() as server:
        yield server


@pytest.fixture
def s3_url(s3_server: S3Server) -> str:
    """A prefix of its own for each test. Pass `s3_server.options` along with it."""
    return s3_server.fresh_url()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with run_postgres() as server:
        yield server


@pytest.fixture
def postgres_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty database for each test."""
    dsn = postgres_server.create_database()
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.fixture(scope="session")
def shared_spark() -> Iterator[SharedSpark]:
    shared = SharedSpark()
    yield shared
    shared.end()


@pytest.fixture
def local_spark(shared_spark: SharedSpark) -> OpenSpark:
    """Spark on two cores of this machine. It stays open for the next test that asks for it."""
    return shared_spark.open_local()


@pytest.fixture
def connect_spark(local_spark: OpenSpark, shared_spark: SharedSpark) -> Iterator[OpenSpark]:
    """A Spark Connect session, on a server with two cores."""
    with open_session(SparkOptions(master=shared_spark.connect_url)) as opened:
        yield opened


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[str]:
    """The master's URL of a cluster of two workers with one core each."""
    with run_spark_cluster() as url:
        yield url
