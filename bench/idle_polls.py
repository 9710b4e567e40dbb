"""The cost of consumers that wait for records which do not come.

Run: python -m bench.idle_polls [--polls 1000] [--connections 1000] [--seconds 20]

Long polls of 10 seconds on an empty partition, each asked again when it is answered. The broker
answers the polls of one connection one after the other, so that only as many wait at once as there
are connections. The cost is the processor time of the broker per second, beside that of the same
broker without polls.
"""

import argparse
import asyncio
from dataclasses import replace
from datetime import timedelta

import uvloop
from bench.connection import Connection, framed, parsed
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11.response import FetchResponse
from kio.static.primitive import i32, i32Timedelta
from tests.support.wire import fetch_of

from stratalog.cli.bench import TemporaryBroker, temporary_broker

TOPIC = "idle"
MAX_WAIT = timedelta(seconds=10)
POLL = framed(
    replace(
        fetch_of(TOPIC, 0, 0),
        max_wait=i32Timedelta.parse(MAX_WAIT),
        min_bytes=i32(1),
    )
)


class Polls:
    """Long polls on one connection, for ever."""

    def __init__(self, connection: Connection, count: int) -> None:
        self._connection = connection
        self._count = count
        self.answered = 0

    async def run(self) -> None:
        for _ in range(self._count):
            self._connection.send(POLL)
        while True:
            answer = parsed(await self._connection.receive(), FetchResponse)
            place = answer.responses[0].partitions[0]
            assert place.error_code is ErrorCode.none, place.error_code
            assert not place.records
            self._connection.send(POLL)
            self.answered += 1


async def cost(broker: TemporaryBroker, seconds: float) -> float:
    """Processor seconds per second."""
    before = broker.cpu_seconds()
    await asyncio.sleep(seconds)
    return (broker.cpu_seconds() - before) / seconds


async def compare(broker: TemporaryBroker, options: argparse.Namespace) -> None:
    at_rest = await cost(broker, options.seconds)
    connections = [await Connection.open(broker.address) for _ in range(options.connections)]
    polls = [Polls(each, options.polls // options.connections) for each in connections]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.run()) for each in polls]
        await asyncio.sleep(1)  # The first polls have come by then, and none is over.
        polling = await cost(broker, options.seconds)
        for task in tasks:
            task.cancel()
    answered = sum(each.answered for each in polls)
    for connection in connections:
        await connection.close()
    print(f"{options.polls} polls of {MAX_WAIT.seconds} s on {options.connections} connections")
    print(f"{answered} answered in {options.seconds} s\n")
    print(f"at rest   {at_rest:6.3f} processor seconds per second")
    print(f"polling   {polling:6.3f} processor seconds per second")
    print(f"per poll  {(polling - at_rest) / options.polls * 1e6:6.1f} us per second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--polls", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=20)
    options = parser.parse_args()
    with temporary_broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        for created in admin.create_topics([NewTopic(TOPIC, 1)]).values():
            created.result()
        del admin
        uvloop.run(compare(broker, options))


if __name__ == "__main__":
    main()
