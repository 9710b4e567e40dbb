"""Brokers that cannot tell sizes: their partitions are left out, and nothing fails."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stratalog.cli.partition_sizes import partition_sizes


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[str, int]]:
    """A server that gives every client the same answer, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        yield listener.getsockname()
        server.join()


def told(*sizes: int) -> bytes:
    """DescribeLogDirs, version 1: one directory with the topic's partitions from 0 on."""
    partitions = b"".join(struct.pack(">iqq?", i, size, 0, False) for i, size in enumerate(sizes))
    topic = struct.pack(">h6si", 6, b"orders", len(sizes)) + partitions
    directory = struct.pack(">hh2si", 0, 2, b"/d", 1) + topic
    body = struct.pack(">iii", 0, 0, 1) + directory
    return struct.pack(">i", len(body)) + body


def test_of_replicas_the_largest_counts() -> None:
    with answering(told(5, 9)) as first, answering(told(7)) as second:
        assert partition_sizes([first, second], "orders", [0, 1]) == {0: 7, 1: 9}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\x00",
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", -1),
        struct.pack(">i", 1 << 30),
        struct.pack(">i", 12) + b"\xff" * 12,
        told(5)[:-3],
    ],
)
def test_who_answers_nonsense_is_left_out(answer: bytes) -> None:
    with answering(answer) as broken, answering(told(5)) as whole:
        assert partition_sizes([broken, whole], "orders", [0]) == {0: 5}


def test_who_does_not_listen_is_left_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    assert partition_sizes([address], "orders", [0]) == {}
