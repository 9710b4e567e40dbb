"""A broker that starts before its store and its database are ready."""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode
from tests.integration.breakable import (
    frail_storage,
    slow_store,
    threads,
)
from tests.integration.known_violations import IMPATIENT, NONE
from tests.support.clients.client import ANSWER_SECONDS
from tests.support.clients.group_members import wait_until
from tests.support.clusters import (
    BASE,
    Cluster,
    create,
    fresh_topic,
)
from tests.support.proxy import running_proxy
from tests.support.servers import PostgresServer, S3Server
from tests.support.wire import batch_of, connected

from stratalog.cli.up import _serve as serve
from stratalog.settings import StorageSettings
from stratalog.testing import Broker

# Starting.


def test_a_broker_waits_for_a_store_and_a_database_that_are_not_ready(
    postgres_server: PostgresServer, s3_server: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Elsewhere a store that asked to slow down at start-up made brokers die, over and over."""
    with slow_store() as slow, frail_storage(postgres_server, s3_server) as storage:
        store, ready = storage.store, storage.store.target

        def lead_to(target: tuple[str, int]) -> None:
            store.target = target
            store.cut_all()

        def mend() -> None:
            wait_until(lambda: "The control plane is not ready" in caplog.text)
            storage.database.come_back()
            wait_until(lambda: "The object store is not ready" in caplog.text)
            lead_to(ready)

        lead_to(slow)
        storage.database.go_away()
        settings = replace(IMPATIENT, storage=storage.settings)
        with threads(mend), Broker(settings) as broker, connected(broker.bootstrap) as wire:
            assert "503 SlowDown" in caplog.text
            topic = create(Cluster([broker.bootstrap]), fresh_topic("late"))
            assert wire.produce(topic, batch_of([b"0"])).error_code is NONE
            lead_to(slow)
            refused = wire.produce(topic, batch_of([b"refused"]))
            assert refused.error_code is ErrorCode.kafka_storage_error
            lead_to(ready)
            assert wire.produce(topic, batch_of([b"1"])).base_offset == 1


async def test_a_broker_that_waits_can_be_stopped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker that waits for a missing server must still react to a signal."""
    with running_proxy() as nobody:
        nobody.go_away()
        storage = StorageSettings(
            objects=f"file:{tmp_path}",
            control=f"postgresql://postgres@{nobody.address}/stratalog",
        )
        serving = asyncio.create_task(serve(replace(BASE, storage=storage)))
        await asyncio.to_thread(wait_until, lambda: "The control plane is not ready" in caplog.text)
        assert not serving.done()
        os.kill(os.getpid(), signal.SIGTERM)
        # Not `wait_for`, which would stop it itself when its time is over.
        assert (await asyncio.wait([serving], timeout=ANSWER_SECONDS))[0], "it waits on"
    assert capsys.readouterr().out == "Stopped.\n"
