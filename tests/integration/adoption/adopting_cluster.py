"""A cluster that adopts topics: a broker that runs, and the commands of its operator."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from tests.support.clients.aiokafka_client import AiokafkaClient
from tests.support.clients.client import Client
from tests.support.clients.confluent_client import ConfluentClient
from tests.support.clusters import BASE, folder_storage, running_cluster
from tests.support.golden_topic import (
    FIRST,
    GOLDEN_RECORDS,
    KEY_SETTING,
    PARTITION,
)
from tests.unit.segment.layout_golden import (
    PREFIX,
    PRIVATE_PEM,
    TOPIC,
)
from typer.testing import CliRunner, Result

from stratalog.cli.main import app
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.settings import RemoteSettings, Settings

T = TypeVar("T")

CLIENTS: list[Client] = [ConfluentClient(), AiokafkaClient()]
KEYED = RemoteSettings(private_keys={"key1": str(PRIVATE_PEM)})


@dataclass(frozen=True)
class AdoptingCluster:
    """A cluster in a folder, with a broker that runs, and the commands of its operator."""

    folder: Path
    settings: Settings
    bootstrap: str

    def try_(self, *arguments: str, answer: str = "") -> Result:
        runner = CliRunner(env={"NO_COLOR": "1", "STRATALOG_BOOTSTRAP": self.bootstrap})
        options = ["--data", str(self.folder), "--set", KEY_SETTING]
        return runner.invoke(app, [*arguments, *options], input=answer)

    def __call__(self, *arguments: str) -> str:
        result = self.try_(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def wire(self, *arguments: str) -> str:
        """A command that asks the broker alone."""
        runner = CliRunner(env={"NO_COLOR": "1", "STRATALOG_BOOTSTRAP": self.bootstrap})
        result = runner.invoke(app, arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def run(self, work: Callable[[ControlPlane], Awaitable[T]]) -> T:
        async def opened() -> T:
            control = await open_control_plane(self.settings.storage.control)
            try:
                return await work(control)
            finally:
                await control.close()

        return asyncio.run(opened())


@contextmanager
def running(folder: Path, **changes: Any) -> Iterator[AdoptingCluster]:
    settings = replace(BASE, storage=folder_storage(folder), remote=KEYED, **changes)
    with running_cluster([settings]) as cluster:
        yield AdoptingCluster(folder, settings, cluster.bootstrap)


def import_arguments(dump: Path, objects: str | Path, *more: str) -> list[str]:
    where = objects if isinstance(objects, str) else f"file:{objects}"
    return [
        *("segments", "import", TOPIC, "--dump", str(dump), "--sealed"),
        *("--kafka-objects", where, "--key-prefix", PREFIX, "--accept-open-transactions", *more),
    ]


def read_all(client: Client, bootstrap: str, topic: str = TOPIC) -> list[tuple[Any, ...]]:
    read = client.read(
        bootstrap, topic, count=len(GOLDEN_RECORDS), partition=PARTITION, start=FIRST
    )
    return [(one.offset, one.timestamp_ms, one.key, one.value) for one in read]


def described(place: AdoptingCluster) -> dict[str, Any]:
    return partitions(place)[PARTITION]


def partitions(place: AdoptingCluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(place("topic", "describe", TOPIC, "--json"))[
        "partitions"
    ]
    return found
