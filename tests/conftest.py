"""Fixtures that every suite shares: real servers, started when the first test asks for one."""

import signal
from collections.abc import Iterator

import pytest
from tests.servers import PostgresServer, S3Server, run_postgres, run_s3_server

# A shell that starts us in the background has us ignore Ctrl-C, and with us all that we start. Some
# tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


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
