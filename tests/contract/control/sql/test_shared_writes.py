import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import pytest
from tests.contract.control.building import batch, commit, held_up, part
from tests.contract.control.segment_building import UPLOADED, chain_of, segment

from stratalog.control.errors import CommitInDoubtError, ControlUnavailableError
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.errors import SegmentStateError
from stratalog.control.segments.model import ChainOutcome
from stratalog.control.sql.database import Connection, Database, Work
from stratalog.control.sql.shared_writes import SharedWrites
from stratalog.control.topics.model import Topic

T = TypeVar("T")


class Counted:
    """A database that counts transactions, and may fail or be held up before it commits one."""

    def __init__(self, inner: Database) -> None:
        self.inner = inner
        self.writes = 0
        self.errors: dict[int, Exception] = {}
        """By the number of the transaction, from 1 on."""
        self.began = [threading.Event() for _ in range(10)]
        self.may_end = [threading.Event() for _ in range(10)]
        """By number, too."""

    @property
    def url(self) -> str:
        return self.inner.url

    async def read(self, work: Work[T]) -> T:
        return await self.inner.read(work)

    async def write(self, work: Work[T]) -> T:
        self.writes += 1
        number = self.writes

        async def held(connection: Connection) -> T:
            result = await work(connection)
            self.began[number].set()
            await held_up(self.may_end[number])
            if number in self.errors:
                raise self.errors[number]
            return result

        return await self.inner.write(held)

    async def close(self) -> None:
        await self.inner.close()


@pytest.fixture
async def counted(database: Database) -> AsyncIterator[Counted]:
    await database.write(
        lambda connection: connection.execute("CREATE TABLE marks (mark bigint PRIMARY KEY)")
    )
    yield Counted(database)
    await database.write(lambda connection: connection.execute("DROP TABLE marks"))


def put(mark: int) -> Callable[[Connection], Awaitable[int]]:
    async def work(connection: Connection) -> int:
        await connection.execute("INSERT INTO marks VALUES ($1)", mark)
        return mark

    return work


async def refused(connection: Connection) -> int:
    await put(100)(connection)
    raise SegmentStateError("no")


async def marks(database: Database) -> list[int]:
    rows = await database.read(
        lambda connection: connection.fetch("SELECT mark FROM marks ORDER BY mark")
    )
    return [mark for (mark,) in rows]


async def begin(
    counted: Counted, shared: SharedWrites, *works: tuple[int, Work[int]]
) -> "list[asyncio.Task[int]]":
    """Writes by their keys. The first one is under way, and the others wait behind it."""
    number = counted.writes + 1
    tasks = [asyncio.create_task(shared.write(key, work)) for key, work in works]
    await held_up(counted.began[number])
    return tasks


async def end(counted: Counted, tasks: "list[asyncio.Task[int]]") -> list[int | BaseException]:
    for event in counted.may_end:
        event.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_those_that_come_meanwhile_go_together(counted: Counted) -> None:
    works = [(mark, put(mark)) for mark in range(10)]
    tasks = await begin(counted, SharedWrites(counted), *works)
    assert await end(counted, tasks) == [*range(10)]
    assert await marks(counted) == [*range(10)]
    assert counted.writes == 2


async def test_they_run_in_the_order_of_their_keys(counted: Counted) -> None:
    order: list[int] = []

    def noted(mark: int) -> Work[int]:
        async def work(connection: Connection) -> int:
            order.append(mark)
            return await put(mark)(connection)

        return work

    works = [(mark, noted(mark)) for mark in (5, 3, 9, 1)]
    await end(counted, await begin(counted, SharedWrites(counted), *works))
    assert order == [5, 1, 3, 9]


async def test_one_that_is_refused_takes_nobody_with_it(counted: Counted) -> None:
    works = enumerate([put(0), put(1), refused, put(2), refused, put(3)])
    answers = await end(counted, await begin(counted, SharedWrites(counted), *works))
    assert [str(answer) for answer in answers] == ["0", "1", "no", "2", "no", "3"]
    assert await marks(counted) == [0, 1, 2, 3]


async def test_of_a_commit_in_doubt_all_are_made_again(counted: Counted) -> None:
    counted.errors[2] = CommitInDoubtError("lost")
    works = [(mark, put(mark)) for mark in range(4)]
    tasks = await begin(counted, SharedWrites(counted), *works)
    assert await end(counted, tasks) == [0, 1, 2, 3]
    assert counted.writes == 5


async def test_no_more_go_together_than_may(counted: Counted) -> None:
    works = [(mark, put(mark)) for mark in range(11)]
    tasks = await begin(counted, SharedWrites(counted, most=4), *works)
    assert await end(counted, tasks) == [*range(11)]
    assert counted.writes == 4


async def test_what_befalls_the_database_befalls_all_of_them_once(counted: Counted) -> None:
    shared, error = SharedWrites(counted), ControlUnavailableError("down")
    counted.errors[2] = error
    works = [(mark, put(mark)) for mark in range(4)]
    assert await end(counted, await begin(counted, shared, *works)) == [0, error, error, error]
    assert counted.writes == 2
    assert await end(counted, await begin(counted, shared, *works[1:])) == [1, 2, 3]
    assert await marks(counted) == [0, 1, 2, 3]


async def test_those_behind_one_that_was_cancelled_are_made_all_the_same(counted: Counted) -> None:
    works = [(mark, put(mark)) for mark in range(4)]
    first, second, third, fourth = await begin(counted, SharedWrites(counted), *works)
    third.cancel()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await end(counted, [second, fourth]) == [1, 3]
    assert await marks(counted) == [1, 3]


async def test_one_that_is_cancelled_while_it_is_written_harms_nobody(counted: Counted) -> None:
    works = [(mark, put(mark)) for mark in range(4)]
    first, *others = await begin(counted, SharedWrites(counted), *works)
    counted.may_end[1].set()
    await first
    await held_up(counted.began[2])
    others[1].cancel()
    answers = await end(counted, others)
    assert [answers[0], answers[2]] == [1, 3]
    assert isinstance(answers[1], asyncio.CancelledError)
    assert await marks(counted) == [0, 1, 2, 3], "it was under way"
    assert counted.writes == 2


async def test_segments_that_come_together_are_refused_one_by_one(
    plane: ControlPlane, topic: Topic
) -> None:
    keys = [part(topic, index) for index in range(3)]
    await commit(plane, *(batch(key, 5) for key in keys))
    added = [segment(key, 0, 4) for key in keys]
    await asyncio.gather(*(plane.segments.add(each) for each in added))
    await plane.segments.delete([added[1].segment_id])
    # The first goes alone, the others together.
    again = [added[0], added[1], added[2], added[0]]
    answers = await asyncio.gather(
        *(plane.segments.add(each) for each in again), return_exceptions=True
    )
    assert [answer is None for answer in answers] == [True, False, True, True]
    finished = await asyncio.gather(
        *(plane.segments.finish(each.segment_id, UPLOADED) for each in added),
        return_exceptions=True,
    )
    assert [type(answer) for answer in finished] == [type(None), SegmentStateError, type(None)]
    chained = await asyncio.gather(
        *(plane.segments.chain(each.segment_id) for each in added), return_exceptions=True
    )
    assert [type(answer) for answer in chained] == [ChainOutcome, SegmentStateError, ChainOutcome]
    assert [await chain_of(plane, key) for key in keys] == [[(0, 4)], [], [(0, 4)]]
