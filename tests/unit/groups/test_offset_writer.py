"""Offset commits that come at once share a transaction, and keep their order."""

import asyncio

import pytest
from tests.support.ledgers import FakeControlPlane

from stratalog.control.errors import ControlUnavailableError
from stratalog.control.groups.model import GroupOffsets, LeftOut, OffsetToCommit
from stratalog.groups.offset_writer import OffsetWriter
from stratalog.ids import Offset, PartitionIndex, new_topic_id

TOPIC = new_topic_id()
STORED: LeftOut = frozenset()


class SlowControl(FakeControlPlane):
    """Notes transactions; each ends when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.transactions: list[list[str]] = []
        self.gate = asyncio.Semaphore(0)
        self.failure: Exception | None = None
        self.poison = "poison"

    async def groups_commit_offsets(self, commits: list[GroupOffsets]) -> list[LeftOut | None]:
        names = [commit.group_id for commit in commits]
        self.transactions.append(names)
        await self.gate.acquire()
        if self.failure is not None:
            raise self.failure
        if self.poison in names:
            raise ValueError("cannot be stored")
        return [STORED if commit.term == 1 else None for commit in commits]


@pytest.fixture
def control() -> SlowControl:
    return SlowControl()


@pytest.fixture
def writer(control: SlowControl) -> OffsetWriter:
    return OffsetWriter(control)


def commit(group_id: str, *, term: int = 1, rows: int = 1) -> GroupOffsets:
    return GroupOffsets(
        group_id=group_id,
        term=term,
        offsets=[
            OffsetToCommit(
                topic_id=TOPIC,
                partition=PartitionIndex(number),
                offset=Offset(1),
                leader_epoch=0,
                metadata="",
            )
            for number in range(rows)
        ],
    )


async def begun(
    writer: OffsetWriter, *commits: GroupOffsets
) -> list["asyncio.Task[LeftOut | None]"]:
    tasks = [asyncio.create_task(writer.commit(each)) for each in commits]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


async def test_what_comes_during_a_transaction_goes_together_into_the_next(
    control: SlowControl, writer: OffsetWriter
) -> None:
    first = await begun(writer, commit("a"))
    rest = await begun(writer, commit("b"), commit("c", term=9), commit("a"))
    assert not first[0].done()
    for _ in range(2):
        control.gate.release()
    assert await asyncio.gather(*first, *rest) == [STORED, STORED, None, STORED]
    assert control.transactions == [["a"], ["b", "c", "a"]]
    again = await begun(writer, commit("d"))
    control.gate.release()
    assert await again[0] == STORED


async def test_a_transaction_is_bounded(
    control: SlowControl, writer: OffsetWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratalog.groups.offset_writer.MAX_ROWS", 10)
    tasks = await begun(writer, commit("a"))
    tasks += await begun(
        writer, commit("b", rows=6), commit("c", rows=4), commit("d"), commit("e", rows=50)
    )
    for _ in range(4):
        control.gate.release()
    assert set(await asyncio.gather(*tasks)) == {STORED}
    assert control.transactions == [["a"], ["b", "c"], ["d"], ["e"]]


async def test_trouble_with_the_database_is_told_to_all(
    control: SlowControl, writer: OffsetWriter
) -> None:
    control.failure = ControlUnavailableError("away")
    tasks = await begun(writer, commit("a"))
    tasks += await begun(writer, commit("b"), commit("c"))
    for _ in range(2):
        control.gate.release()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [ControlUnavailableError] * 3


async def test_one_that_cannot_be_stored_does_not_hurt_the_others(
    control: SlowControl, writer: OffsetWriter
) -> None:
    tasks = await begun(writer, commit("a"))
    tasks += await begun(writer, commit("b"), commit("poison"), commit("c"))
    for _ in range(5):
        control.gate.release()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [results[place] for place in (0, 1, 3)] == [STORED] * 3
    assert isinstance(results[2], ValueError)


async def test_a_client_that_goes_away_hurts_nobody(
    control: SlowControl, writer: OffsetWriter
) -> None:
    tasks = await begun(writer, commit("a"), commit("b"))
    tasks[0].cancel()
    tasks[1].cancel()
    for _ in range(2):
        control.gate.release()
    await writer.close()
    assert control.transactions == [["a", "b"]]
    again = await begun(writer, commit("c"))
    control.gate.release()
    assert await again[0] == STORED


async def test_closing_waits_for_what_is_under_way(
    control: SlowControl, writer: OffsetWriter
) -> None:
    await writer.close()
    [task] = await begun(writer, commit("a"))
    closing = asyncio.create_task(writer.close())
    await asyncio.sleep(0)
    assert not closing.done()
    control.gate.release()
    await closing
    assert await task == STORED
