"""Idle sockets take no descriptor that the store or the database needs."""

import socket
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer
from tests.integration.broker_process import process
from tests.support.clients.client import ANSWER_SECONDS

OPEN_FILES = 240
"""A broker needs about 40 for itself."""


def test_produces_go_on_while_one_client_opens_as_many_sockets_as_it_can(tmp_path: Path) -> None:
    with (
        process(["--no-pipeline"], tmp_path, open_files=OPEN_FILES) as broker,
        ExitStack() as idle,
    ):
        host, port = broker.address.rsplit(":", 1)
        producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
        assert written(producer, "before") == []
        for _ in range(OPEN_FILES + 60):
            client = idle.enter_context(socket.create_connection((host, int(port))))
            client.settimeout(ANSWER_SECONDS)
        assert client.recv(1) == b"", "the last client is refused"
        assert written(producer, "meanwhile") == []


def written(producer: Producer, value: str) -> list[str]:
    """Produce to new partitions, which opens files; returns the errors."""
    errors: list[str] = []
    for number in range(8):
        producer.produce(
            f"topic-{number}",
            value,
            on_delivery=lambda error, _: errors.append(str(error)) if error else None,
        )
    assert producer.flush(ANSWER_SECONDS) == 0
    return errors
