"""A store's count of its requests agrees with the S3 server's."""

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.integration.gated_s3 import Gate, gated
from tests.support.servers import S3Server

from stratalog.clock import SystemClock
from stratalog.metrics import Metrics
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore, Range
from stratalog.settings import MIB

HEADERS_BYTES = 2000
"""No answer's headers are longer."""


class Counted:
    """A store with its counts, and the server that counts as well."""

    def __init__(self, gate: Gate, server: S3Server) -> None:
        self.gate = gate
        self._before: dict[str, int] = {}
        self._metrics = Metrics()
        self.store: ObjectStore = open_store(
            server.fresh_url(), server.options, clock=SystemClock(), metrics=self._metrics
        )

    def sample(self, name: str, operation: str) -> int:
        labels = {"operation": operation}
        value = self._metrics.registry.get_sample_value(f"stratalog_objects_{name}_total", labels)
        return int(value or 0)

    def requests(self, operation: str) -> int:
        """The requests of the last call, on which both sides agree."""
        seen = len(self.gate.requests)
        self.gate.requests.clear()
        counted = self.sample("requests", operation) - self._before.get(operation, 0)
        self._before[operation] = self.sample("requests", operation)
        assert counted == seen
        return counted


@pytest.fixture
def counted(s3_server: S3Server) -> Iterator[Counted]:
    with gated(s3_server) as (gate, server):
        yield Counted(gate, server)


async def stream(size_bytes: int) -> AsyncIterator[bytes]:
    for start in range(0, size_bytes, MIB):
        yield bytes(min(MIB, size_bytes - start))


@pytest.mark.parametrize(
    ("size_bytes", "requests"),
    [(1, 1), (8 * MIB - 1, 1), (8 * MIB, 3), (8 * MIB + 1, 4), (20 * MIB, 5)],
)
async def test_every_part_of_a_stream_is_a_request(
    counted: Counted, size_bytes: int, requests: int
) -> None:
    assert await counted.store.put_stream("x", stream(size_bytes)) == size_bytes
    assert counted.requests("put_stream") == requests
    assert counted.sample("bytes", "put_stream") == size_bytes


async def test_a_large_put_goes_up_in_parts_as_well(counted: Counted) -> None:
    await counted.store.put("x", [bytes(64 * MIB)])
    assert counted.requests("put") == 4 + 2
    assert counted.sample("bytes", "put") == 64 * MIB


async def test_ranges_that_lie_apart_are_requests_and_gaps_are_bytes(counted: Counted) -> None:
    await counted.store.put("x", [bytes(6 * MIB)])
    assert counted.requests("put") == 1
    before_bytes = counted.gate.answered_bytes
    ranges = [Range(0, 10), Range(MIB, MIB + 10), Range(3 * MIB, 3 * MIB + 10), Range(5, 20)]
    answers = await counted.store.get_ranges("x", ranges)
    assert [len(answer) for answer in answers] == [10, 10, 10, 15]
    assert counted.requests("get_ranges") == 2
    read_bytes = counted.sample("bytes", "get_ranges")
    assert read_bytes == MIB + 10 + 10
    sent_bytes = counted.gate.answered_bytes - before_bytes
    assert read_bytes <= sent_bytes <= read_bytes + 2 * HEADERS_BYTES


async def test_other_calls_are_a_request_each(counted: Counted) -> None:
    store = counted.store
    await store.put("a/x", [b"12345"])
    assert counted.requests("put") == 1
    await store.get("a/x")
    assert (counted.requests("get"), counted.sample("bytes", "get")) == (1, 5)
    await store.head("a/x")
    assert counted.requests("head") == 1
    await store.copy("a/x", "a/y")
    assert counted.requests("copy") == 1
    assert [info.key async for info in store.list("a/")] == ["a/x", "a/y"]
    assert counted.requests("list") == 1
    assert [info.key async for info in store.list("b/")] == []
    assert counted.requests("list") == 1
    await store.delete(["a/x", "a/y"])
    assert counted.requests("delete") == 1
