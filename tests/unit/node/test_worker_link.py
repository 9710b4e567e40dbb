"""The link between workers: a message to a worker that was killed is lost, without an error."""

import asyncio
import socket

import uvloop

from stratalog.ids import Offset, PartitionIndex, TopicId, TopicPartition, new_uuid
from stratalog.node.workers.link import Kind, Link, advanced_of

ADVANCED = {TopicPartition(TopicId(new_uuid()), PartitionIndex(0)): Offset(5)}


async def linked() -> tuple[Link, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return await Link.over(ours), theirs


def test_news_for_a_worker_that_was_killed_are_lost_until_its_end_is_told() -> None:
    async def tell() -> None:
        link, theirs = await linked()
        theirs.close()
        for _ in range(3):
            for _ in range(10):
                link.tell(Kind.COMMITTED, ADVANCED)
                link.send(Kind.SERVES)
            await asyncio.sleep(0)
        assert await link.receive() is None
        link.tell(Kind.COMMITTED, ADVANCED)
        link.close()

    uvloop.run(tell())


def test_news_for_a_worker_that_takes_none_are_dropped_and_later_ones_arrive() -> None:
    async def tell() -> None:
        link, theirs = await linked()
        for _ in range(100_000):
            link.tell(Kind.COMMITTED, ADVANCED)
        theirs.setblocking(False)
        other = await Link.over(theirs)
        link.end()
        count = 0
        while (message := await other.receive()) is not None:
            assert advanced_of(message[1]) == ADVANCED
            count += 1
        assert 0 < count < 100_000
        for one in (link, other):
            one.close()

    uvloop.run(tell())
