"""A broker whose object store, database or disk is away for a while.

Its network runs through proxies that cut it off. Blocks are given up soon, so that an outage is
longer than the broker's own patience and the producers have to send again.
"""

import errno
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.support.clients.aiokafka_client import AiokafkaClient
from tests.support.clients.client import Client
from tests.support.clients.confluent_client import ConfluentClient
from tests.support.clients.kafka_python_client import KafkaPythonClient
from tests.support.clients.kcat_client import KcatClient
from tests.support.clients.message import numbered, values
from tests.support.clusters import BASE, Cluster, create, fresh_topic, one_broker, running_cluster
from tests.support.proxy import Proxy, running_proxy
from tests.support.servers import PostgresServer, S3Server
from tests.support.wire import batch_of, connected

from stratalog.settings import BlockSettings, StorageSettings

MESSAGES = 400
CLIENTS: list[Client] = [ConfluentClient(), KafkaPythonClient(), AiokafkaClient(), KcatClient()]
IMPATIENT = replace(BASE, block=BlockSettings(window_ms=5, retry_ms=200, cache_bytes=0))


@dataclass(frozen=True, slots=True)
class Frail:
    cluster: Cluster
    store: Proxy
    database: Proxy


@pytest.fixture(scope="module")
def frail(postgres_server: PostgresServer, s3_server: S3Server) -> Iterator[Frail]:
    dsn = postgres_server.create_database()
    with running_proxy() as store, running_proxy() as database:
        store.target = _address(s3_server.endpoint.removeprefix("http://"))
        database.target = (postgres_server.host, postgres_server.port)
        storage = StorageSettings(
            objects=s3_server.fresh_url(),
            control=dsn.replace(f":{postgres_server.port}/", f":{database.port}/"),
            object_options={**s3_server.options, "endpoint": f"http://{store.address}"},
        )
        with running_cluster([replace(IMPATIENT, storage=storage)]) as cluster:
            yield Frail(cluster, store, database)
            store.come_back()
            database.come_back()
    postgres_server.drop_database(dsn)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


@contextmanager
def away(*proxies: Proxy) -> Iterator[None]:
    """Cut off, and noticed to be so, when the block begins to run; there again when it ends."""
    for proxy in proxies:
        proxy.go_away()
    try:
        yield
    finally:
        for proxy in proxies:
            proxy.come_back()


class InBackground:
    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._failure: BaseException | None = None
        self.answer: Any = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def result(self) -> Any:
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self.answer

    def _run(self) -> None:
        try:
            self.answer = self._work()
        except BaseException as failure:
            self._failure = failure


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("victim", ["store", "database"])
def test_an_idempotent_producer_outlasts_an_outage(
    frail: Frail, client: Client, victim: str
) -> None:
    topic = create(frail.cluster, fresh_topic(f"no-{victim}"))
    bootstrap = frail.cluster.bootstrap
    client.write(bootstrap, topic, numbered(10, "before"), idempotent=True)
    proxy: Proxy = getattr(frail, victim)
    sent = numbered(MESSAGES, "x" * 200)
    with away(proxy):
        turned_away = proxy.turned_away
        writing = InBackground(lambda: client.write(bootstrap, topic, sent, idempotent=True))
        wait_until(lambda: proxy.turned_away >= turned_away + 12)
    writing.result()
    with connected(frail.cluster.addresses[0]) as wire:
        assert wire.fetch_values(topic) == values(numbered(10, "before")) + values(sent)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_commits_in_doubt_are_settled_and_nothing_comes_twice(
    frail: Frail, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create(frail.cluster, fresh_topic("doubt"))
    sent = numbered(4 * MESSAGES, "x" * 300)
    # Reads and the renewals of the lease commit, too, and must not use up the cuts. A fresh
    # connection carries the text of every statement; later only the statement's name.
    frail.database.cut_all()
    frail.database.cut_at_word = 0
    frail.database.cut_at(b"COMMIT\0", times=6, after=b"INSERT INTO objects")
    try:
        client.write(frail.cluster.bootstrap, topic, sent, idempotent=True)
    finally:
        frail.database.behave()
    assert frail.database.cut_at_word >= 2
    assert "outcome of a commit is unknown" in caplog.text
    assert "unexpected" not in caplog.text
    with connected(frail.cluster.addresses[0]) as wire:
        assert wire.fetch_values(topic) == values(sent)


def test_a_lost_answer_to_a_read_is_worth_another_try(frail: Frail) -> None:
    """A read has no outcome that could be unknown: consumers get a retriable error."""
    topic = create(frail.cluster, fresh_topic("reread"))
    with connected(frail.cluster.addresses[0]) as wire:
        assert wire.produce(topic, batch_of([b"kept"])).error_code is ErrorCode.none
        for _ in range(2):
            frail.database.cut_at(b"COMMIT\0", times=1)
            error, _ = wire.fetch(topic, 0, 0)
            frail.database.behave()
            assert error in (ErrorCode.none, ErrorCode.kafka_storage_error)
        assert wire.fetch_values(topic) == [b"kept"]


def test_a_database_that_drops_connections_all_the_time_costs_nothing_but_time(
    frail: Frail, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create(frail.cluster, fresh_topic("dropping"))
    sent = numbered(4 * MESSAGES, "x" * 300)
    frail.database.cut_all()
    frail.database.cut_randomly(
        times=30, there_bytes=(3_000, 20_000), back_bytes=(2_000, 8_000), seed=5
    )
    try:
        ConfluentClient().write(frail.cluster.bootstrap, topic, sent, idempotent=True)
    finally:
        frail.database.behave()
    assert "unexpected" not in caplog.text
    with connected(frail.cluster.addresses[0]) as wire:
        assert wire.fetch_values(topic) == values(sent)


@pytest.mark.parametrize("victim", ["store", "database"])
def test_producers_are_told_to_retry_and_reads_fail_alone_while_it_lasts(
    frail: Frail, victim: str
) -> None:
    topic = create(frail.cluster, fresh_topic("told"))
    with connected(frail.cluster.addresses[0]) as wire:
        assert wire.produce(topic, batch_of([b"before"])).error_code is ErrorCode.none
        with away(getattr(frail, victim)):
            refused = wire.produce(topic, batch_of([b"refused"])).error_code
            assert refused in (ErrorCode.kafka_storage_error, ErrorCode.request_timed_out)
            error, records = wire.fetch(topic, 0, 0)
            assert (error, records) == (ErrorCode.kafka_storage_error, [])
        assert wire.produce(topic, batch_of([b"after"])).error_code is ErrorCode.none
        assert wire.fetch_values(topic) == [b"before", b"after"]


def test_an_idempotent_batch_refused_in_an_outage_is_taken_afterwards(frail: Frail) -> None:
    topic = create(frail.cluster, fresh_topic("retried"))

    def batch(sequence: int) -> bytes:
        return batch_of(
            [b"%d" % sequence], producer_id=2**43, producer_epoch=0, base_sequence=sequence
        )

    with connected(frail.cluster.addresses[0]) as wire:
        with away(frail.store):
            assert wire.produce(topic, batch(0)).error_code is ErrorCode.kafka_storage_error
        overtaking = wire.produce(topic, batch(1)).error_code
        assert overtaking is ErrorCode.kafka_storage_error
        for sequence in (0, 1, 0):
            assert wire.produce(topic, batch(sequence)).base_offset == sequence
        assert wire.fetch_values(topic) == [b"0", b"1"]


def _write_for_ever(file: FileIO, size: int) -> None:
    while True:
        file.write(bytes(size))


class Disk:
    """A folder whose disk can be filled to the last byte, and freed again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        with self._ballast.open("wb", buffering=0) as ballast:
            for size in (1 << 16, 1 << 12, 1):
                with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                    _write_for_ever(ballast, size)

    def free(self) -> None:
        self._ballast.unlink()


class PretendedDisk(Disk):
    """Where no file system may be mounted, the calls that write objects say that it is full."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        self._monkeypatch = monkeypatch

    def fill(self) -> None:
        def writev(descriptor: int, buffers: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        self._monkeypatch.setattr(os, "writev", writev)

    def free(self) -> None:
        self._monkeypatch.undo()


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "stratalog-test", f"{tmp_path}"]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        yield PretendedDisk(tmp_path, monkeypatch)
        return
    try:
        yield Disk(tmp_path)
    finally:
        subprocess.run(["umount", f"{tmp_path}"], check=True)


def test_a_full_disk_is_told_and_outlasted(disk: Disk) -> None:
    with one_broker(disk.folder, base=IMPATIENT) as cluster, connected(cluster.bootstrap) as wire:
        topic = create(cluster, fresh_topic("full"))
        before = [b"before-%d" % number for number in range(5)]
        for value in before:
            assert wire.produce(topic, batch_of([value])).error_code is ErrorCode.none
        disk.fill()
        for _ in range(3):
            refused = wire.produce(topic, batch_of([b"refused" * 500]))
            assert refused.error_code is ErrorCode.kafka_storage_error
        assert wire.fetch_values(topic) == before
        disk.free()
        assert wire.produce(topic, batch_of([b"after"])).error_code is ErrorCode.none
        assert wire.fetch_values(topic) == [*before, b"after"]


def test_an_idempotent_producer_outlasts_a_full_disk(disk: Disk) -> None:
    with one_broker(disk.folder, base=IMPATIENT) as cluster:
        topic = create(cluster, fresh_topic("full-idempotent"))
        sent = numbered(MESSAGES, "x" * 200)
        disk.fill()
        writing = InBackground(
            lambda: ConfluentClient().write(cluster.bootstrap, topic, sent, idempotent=True)
        )
        with connected(cluster.bootstrap) as wire:
            refused = wire.produce(topic, batch_of([b"refused" * 500]))
            assert refused.error_code is ErrorCode.kafka_storage_error
        disk.free()
        writing.result()
        with connected(cluster.bootstrap) as wire:
            assert wire.fetch_values(topic) == values(sent)
