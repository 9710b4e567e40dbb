"""Clusters that the compatibility suites share, each kind started once."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.compat.recorder import Recorder
from tests.support.clients.aiokafka_client import AiokafkaClient
from tests.support.clients.client import Client
from tests.support.clients.confluent_client import ConfluentClient
from tests.support.clients.kafka_python_client import KafkaPythonClient
from tests.support.clients.kcat_client import KcatClient
from tests.support.clusters import Cluster, one_broker, two_brokers

ONE = "one broker"
TWO = "two brokers"
CLIENTS: list[Client] = [ConfluentClient(), KafkaPythonClient(), AiokafkaClient(), KcatClient()]

COMPATIBILITY = Path(__file__).parents[2] / "docs" / "evidence" / "compatibility.json"
_RECORDER = pytest.StashKey[Recorder]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-compatibility",
        action="store_true",
        help="rewrite docs/evidence/compatibility.json from a run of all of tests/compat",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record-compatibility"):
        config.stash[_RECORDER] = Recorder()
        config.stash[_RECORDER].install()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _RECORDER in session.config.stash:
        session.config.stash[_RECORDER].write(COMPATIBILITY)


@contextmanager
def _started(
    request: pytest.FixtureRequest, folder: Path, *, proxied: bool = False
) -> Iterator[Cluster]:
    """The kind that the fixture's parameter names. Servers start only for those who need them."""
    if request.param == ONE:
        with one_broker(folder, proxied=proxied) as cluster:
            yield cluster
        return
    postgres = request.getfixturevalue("postgres_server")
    s3 = request.getfixturevalue("s3_server")
    with two_brokers(postgres, s3, proxied=proxied) as cluster:
        yield cluster


@pytest.fixture(scope="session", params=[ONE, TWO])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    with _started(request, tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="module", params=[ONE, TWO])
def proxied_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Every connection of a client passes a proxy, which the test can make cut it."""
    with _started(request, tmp_path_factory.mktemp("proxied"), proxied=True) as started:
        yield started


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    found: Client = request.param
    return found


@pytest.fixture(params=CLIENTS, ids=lambda client: f"read-by-{client.name}")
def reader(request: pytest.FixtureRequest) -> Client:
    found: Client = request.param
    return found
