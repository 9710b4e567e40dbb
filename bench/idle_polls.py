"""The cost of consumers that wait for records which do not come.

Run: python -m bench.idle_polls [--polls 500] [--connections 500] [--partitions 1] [--sessions]
     [--wait-ms 500] [--seconds 20]

Polls of empty partitions, each asked again when it is answered. By default, clients wait for half a
second. The broker answers the polls of one connection one after the other, so that only as many
wait at once as there are connections. With fetch sessions, as Java's consumers have them, a poll
names its partitions once and never again. The cost is the processor time of the broker per second,
beside that of the same broker without polls.
"""

import argparse
import asyncio
import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import uvloop
from bench.connection import Connection, framed, parsed
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11.response import FetchResponse
from kio.static.primitive import i32, i32Timedelta
from tests.support.wire import fetch_of

from stratalog.cli.bench import TemporaryBroker, temporary_broker

TOPIC = "idle"


def request(options: argparse.Namespace) -> Any:
    """A full fetch of all partitions."""
    one = fetch_of(TOPIC, 0, 0)
    [asked] = one.topics
    places = [replace(asked.partitions[0], partition=i32(n)) for n in range(options.partitions)]
    return replace(
        one,
        max_wait=i32Timedelta.parse(timedelta(milliseconds=options.wait_ms)),
        min_bytes=i32(1),
        topics=(replace(asked, partitions=tuple(places)),),
    )


class Polls:
    """Polls on one connection, for ever."""

    def __init__(self, connection: Connection, count: int, options: argparse.Namespace) -> None:
        self._connection = connection
        self._count = count
        self._request = request(options)
        self._partitions = options.partitions
        self._has_session = options.sessions
        self.answered = 0

    async def run(self) -> None:
        if self._has_session:
            await self._run_session()
        poll = framed(self._request)
        for _ in range(self._count):
            self._connection.send(poll)
        while True:
            await self._answer(self._partitions)
            self._connection.send(poll)

    async def _run_session(self) -> None:
        begin = replace(self._request, session_id=i32(0), session_epoch=i32(0))
        self._connection.send(framed(begin))
        session_id = await self._answer(self._partitions)
        assert session_id, "the broker has no slot for the session"
        for epoch in itertools.count(1):
            poll = replace(begin, session_id=session_id, session_epoch=i32(epoch), topics=())
            self._connection.send(framed(poll))
            assert await self._answer(0) == session_id

    async def _answer(self, partitions: int) -> i32:
        answer = parsed(await self._connection.receive(), FetchResponse)
        assert answer.error_code is ErrorCode.none, answer.error_code
        places = [place for topic in answer.responses for place in topic.partitions]
        assert len(places) == partitions
        assert all(one.error_code is ErrorCode.none and not one.records for one in places)
        self.answered += 1
        session_id: i32 = answer.session_id
        return session_id


async def cost(broker: TemporaryBroker, seconds: float) -> float:
    """Processor seconds per second."""
    before = broker.cpu_seconds()
    await asyncio.sleep(seconds)
    return (broker.cpu_seconds() - before) / seconds


async def compare(broker: TemporaryBroker, options: argparse.Namespace) -> None:
    at_rest = await cost(broker, options.seconds)
    connections = [await Connection.open(broker.address) for _ in range(options.connections)]
    own = options.polls // options.connections
    polls = [Polls(each, own, options) for each in connections]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.run()) for each in polls]
        await asyncio.sleep(options.settle_seconds)
        before = sum(each.answered for each in polls)
        polling = await cost(broker, options.seconds)
        for task in tasks:
            task.cancel()
    answered = sum(each.answered for each in polls) - before
    for connection in connections:
        await connection.close()
    print(
        f"{options.polls} polls of {options.wait_ms} ms and {options.partitions} partitions on "
        f"{options.connections} connections, sessions: {options.sessions}"
    )
    print(f"{answered} answered in {options.seconds} s\n")
    print(f"at rest   {at_rest:6.3f} processor seconds per second")
    print(f"polling   {polling:6.3f} processor seconds per second")
    print(f"per poll  {(polling - at_rest) * options.seconds / answered * 1e6:6.1f} us")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--polls", type=int, default=500)
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--sessions", action="store_true")
    parser.add_argument("--settle-seconds", type=int, default=3)
    parser.add_argument("--wait-ms", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=20)
    options = parser.parse_args()
    with temporary_broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        for created in admin.create_topics([NewTopic(TOPIC, options.partitions)]).values():
            created.result()
        del admin
        uvloop.run(compare(broker, options))


if __name__ == "__main__":
    main()
