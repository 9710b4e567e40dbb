"""Brokers with a store and a database that a test can inspect and break."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import asyncpg
from tests.support.clusters import Cluster
from tests.support.proxy import Proxy, running_proxy
from tests.support.servers import PostgresServer, S3Server
from tests.support.wire import Wire, connected

from stratalog.clock import SystemClock
from stratalog.objects.open import open_store
from stratalog.settings import Settings, StorageSettings
from stratalog.testing import Broker

_OF_TOPIC = "topic_id = (SELECT topic_id FROM topics WHERE name = $1)"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two brokers, and the database that they share."""

    cluster: Cluster
    dsn: str

    def change(self, sql: str, *args: object) -> None:
        """Run SQL behind the brokers' backs."""
        run_sql(self.dsn, sql, *args)

    def begin_at(self, topic: str, offset: int) -> None:
        """Let an empty topic's only partition begin at an offset."""
        self.change(
            "UPDATE partitions SET log_start = $2, block_start = $2, remote_end = $2"
            f" WHERE {_OF_TOPIC}",
            topic,
            offset,
        )
        self.change(f"UPDATE heads SET high_watermark = $2 WHERE {_OF_TOPIC}", topic, offset)

    def begin_epochs(self, topic: str, starts: dict[int, int]) -> None:
        """The change that a migration makes."""
        self.change(f"DELETE FROM epochs WHERE {_OF_TOPIC}", topic)
        for epoch, start in starts.items():
            self.change(
                "INSERT INTO epochs SELECT topic_id, 0, $2::integer, $3::bigint FROM topics"
                " WHERE name = $1",
                topic,
                epoch,
                start,
            )
        last = max(starts)
        self.change(f"UPDATE heads SET leader_epoch = $2::integer WHERE {_OF_TOPIC}", topic, last)

    @contextmanager
    def wires(self) -> Iterator[tuple[Wire, Wire]]:
        here, there = self.cluster.addresses
        with connected(here) as one, connected(there) as two:
            yield one, two


@dataclass(frozen=True, slots=True, kw_only=True)
class FrailStorage:
    """A database and a store that can be taken away from those who use these settings."""

    settings: StorageSettings
    database: Proxy
    store: Proxy
    dsn: str
    """The database itself, which stays."""

    def stored_keys(self) -> set[str]:
        """The keys in the store itself."""
        host, port = self.store.target
        options = {**self.settings.object_options, "endpoint": f"http://{host}:{port}"}

        async def work() -> set[str]:
            store = open_store(self.settings.objects, options, clock=SystemClock())
            try:
                return {info.key async for info in store.list("blocks/")}
            finally:
                await store.close()

        return asyncio.run(work())


@dataclass(frozen=True, slots=True)
class Frail:
    """A broker on storage that can be taken away."""

    address: str
    storage: FrailStorage

    @property
    def database(self) -> Proxy:
        return self.storage.database


def run_sql(dsn: str, sql: str, *args: object) -> list[Any]:
    async def work() -> list[Any]:
        connection = await asyncpg.connect(dsn)
        try:
            return list(await connection.fetch(sql, *args))
        finally:
            await connection.close()

    return asyncio.run(work())


@contextmanager
def frail_storage(postgres: PostgresServer, s3: S3Server) -> Iterator[FrailStorage]:
    dsn = postgres.create_database()
    with running_proxy() as database, running_proxy() as store:
        database.target = (postgres.host, postgres.port)
        host, _, port = s3.endpoint.removeprefix("http://").rpartition(":")
        store.target = (host, int(port))
        settings = StorageSettings(
            objects=s3.fresh_url(),
            control=dsn.replace(f":{postgres.port}/", f":{database.port}/"),
            object_options={**s3.options, "endpoint": f"http://{store.address}"},
        )
        yield FrailStorage(settings=settings, database=database, store=store, dsn=dsn)
    postgres.drop_database(dsn)


@contextmanager
def frail_broker(postgres: PostgresServer, s3: S3Server, base: Settings) -> Iterator[Frail]:
    with (
        frail_storage(postgres, s3) as storage,
        Broker(replace(base, storage=storage.settings)) as broker,
    ):
        try:
            yield Frail(broker.bootstrap, storage)
        finally:
            storage.database.come_back()


@contextmanager
def threads(*work: Callable[[], None]) -> Iterator[None]:
    """Run beside the block. A failure in a thread fails the test."""
    failures: list[BaseException] = []

    def run(one: Callable[[], None]) -> None:
        try:
            one()
        except BaseException as failure:
            failures.append(failure)

    running = [threading.Thread(target=run, args=(one,)) for one in work]
    for each in running:
        each.start()
    try:
        yield
    finally:
        for each in running:
            each.join()
    if failures:
        raise failures[0]


@contextmanager
def away(proxy: Proxy) -> Iterator[None]:
    proxy.go_away()
    try:
        yield
    finally:
        proxy.come_back()


class SlowDown(BaseHTTPRequestHandler):
    """An object store that has too much to do."""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b"<Error><Code>SlowDown</Code><Message>Please reduce your rate</Message></Error>"
        self.send_response(503)
        self.send_header("Content-Length", f"{len(body)}")
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_POST = do_GET  # noqa: N815 - The base class looks for these names.

    def log_message(self, *_: object) -> None:
        """Tests are quiet."""


@contextmanager
def slow_store() -> Iterator[tuple[str, int]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), SlowDown) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield ("127.0.0.1", server.server_port)
        finally:
            server.shutdown()
            serving.join()
