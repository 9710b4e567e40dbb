"""Topics for Spark to read, on a real broker, and their rows as a Kafka consumer has them."""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pyspark.sql import DataFrame, Row
from tests.integration.storage import run_in
from tests.support.clients.client import CODECS
from tests.support.clients.confluent_client import ConfluentClient
from tests.support.clients.message import CREATE_TIME, Headers, Message, Received
from tests.support.tiering import Converter

from stratalog.control.plane import ControlPlane
from stratalog.objects.store import ObjectStore
from stratalog.settings import Settings

T = TypeVar("T")

START_MS = 1_780_000_000_000
EXPRESSIONS = (
    "topic",
    "partition",
    "offset",
    "key",
    "value",
    "headers",
    "unix_millis(timestamp) AS timestamp_ms",
    "timestampType",
)


class ReadRow(NamedTuple):
    """A record as a Kafka consumer sees it. Sorts as offsets do."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None
    """None if there are none: Spark's Kafka source has it so."""
    timestamp_ms: int
    timestamp_type: int


@dataclass(frozen=True)
class Lake:
    """Storage without a broker, and the settings file by which Spark finds it."""

    settings: Settings
    config: Path

    @classmethod
    def of(cls, settings: Settings, folder: Path) -> "Lake":
        config = folder / "stratalog.toml"
        config.write_text(_toml(settings))
        return cls(settings, config)

    def run(self, work: Callable[[ControlPlane, ObjectStore], Awaitable[T]]) -> T:
        return run_in(self.settings, work)

    def convert(
        self, topic: str, partition: int = 0, *, up_to: int | None = None, **how: Any
    ) -> None:
        """Make rows that end at or before `up_to` into segments of some rows each."""

        async def work(control: ControlPlane, store: ObjectStore) -> None:
            [found] = await control.topics.named([topic])
            converter = Converter(control=control, store=store, **how)
            while await converter.convert(found, partition, up_to=up_to, max_rows=2):
                pass

        self.run(work)


def message(number: int) -> Message:
    """Now and then without a key, a value, headers, or the value of one."""
    return Message(
        None if number % 11 == 3 else b"value %d " % number + b"." * (number % 7 * 40),
        key=None if number % 5 == 1 else b"key %d" % (number % 5),
        headers=(("number", b"%d" % number), ("nothing", None)) if number % 3 else (),
        timestamp_ms=START_MS + number * 1000,
    )


def fill(
    bootstrap: str, topic: str, count: int, *, partition: int = 0, first: int = 0, each: int = 10
) -> None:
    """Batches of all codecs in turn."""
    for place in range(first, first + count, each):
        some = [message(number) for number in range(place, min(place + each, first + count))]
        codec = CODECS[place // each % len(CODECS)]
        ConfluentClient().write(bootstrap, topic, some, partition=partition, codec=codec)


def consumed(
    bootstrap: str, topic: str, count: int, partition: int = 0, *, start: int = 0
) -> list[ReadRow]:
    received = ConfluentClient().read(
        bootstrap, topic, count=count, partition=partition, start=start
    )
    assert len(received) == count
    return [received_row(topic, partition, each) for each in received]


def received_row(topic: str, partition: int, each: Received) -> ReadRow:
    return ReadRow(
        topic,
        partition,
        each.offset,
        each.key,
        each.value,
        each.headers or None,
        each.timestamp_ms,
        0 if each.timestamp_type == CREATE_TIME else 1,
    )


def rows_of(frame: DataFrame) -> list[ReadRow]:
    """By topic, partition and offset, whatever order tasks ended in."""
    found = [
        ReadRow(
            row.topic,
            row.partition,
            row.offset,
            _bytes(row.key),
            _bytes(row.value),
            _headers(row.headers),
            row.timestamp_ms,
            row.timestampType,
        )
        for row in frame.selectExpr(*EXPRESSIONS).collect()
    ]
    return sorted(found, key=lambda row: row[:3])


def offsets_of(rows: Sequence[ReadRow]) -> list[int]:
    return [row.offset for row in rows]


def _headers(value: Sequence[Row] | None) -> Headers | None:
    return None if value is None else tuple((each.key, _bytes(each.value)) for each in value)


def _bytes(value: bytes | bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def _toml(settings: Settings) -> str:
    storage = settings.storage
    lines = ["[storage]", f'objects = "{storage.objects}"', f'control = "{storage.control}"']
    for name, table in (
        ("storage.object_options", storage.object_options),
        ("remote.private_keys", settings.remote.private_keys),
    ):
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"
