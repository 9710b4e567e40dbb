"""A producer that keeps its answers, and a SQLite control plane that goes back."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

GoBack = Callable[[], None]
"""Puts back the control plane that was saved."""


class Acks:
    """The offsets and errors that a producer is answered with."""

    def __init__(self, address: str) -> None:
        self.offsets: list[int | None] = []
        self.errors: list[KafkaError] = []
        self._producer = Producer(
            {"bootstrap.servers": address, "message.timeout.ms": 4000, "linger.ms": 0}
        )

    def send(self, value: str) -> None:
        self._producer.produce("orders", value, on_delivery=self._answered)
        self._producer.flush(20)

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.offsets.append(message.offset())
        else:
            self.errors.append(error)


def save_sqlite(database: Path) -> GoBack:
    saved = database.with_name("saved.db")
    with closing(sqlite3.connect(database)) as live, closing(sqlite3.connect(saved)) as copy:
        live.backup(copy)

    def go_back() -> None:
        with closing(sqlite3.connect(saved)) as copy, closing(sqlite3.connect(database)) as live:
            copy.backup(live)

    return go_back
