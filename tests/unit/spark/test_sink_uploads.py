"""Uploads of a task, to a scripted store."""

import asyncio
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import pytest

from stratalog.block.block import OpenBlock, SealedBlock, seal
from stratalog.control.log.model import BlockToCommit
from stratalog.ids import NO_BROKER, ObjectId, uuid7
from stratalog.objects.errors import StoreUnavailableError
from stratalog.objects.store import Buffer, ObjectStore
from stratalog.spark.sink_uploads import Uploads


class SlowStore:
    """Puts wait until they are let through."""

    def __init__(self, failing: int = -1) -> None:
        self.through = threading.Event()
        self.begun = 0
        self.most_at_once = 0
        self.closed = False
        self._at_once = 0
        self._failing = failing

    async def put(self, key: str, parts: Sequence[Buffer]) -> str:
        number, self.begun = self.begun, self.begun + 1
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await asyncio.to_thread(self.through.wait)
        self._at_once -= 1
        if number == self._failing:
            raise StoreUnavailableError("away")
        return key

    async def close(self) -> None:
        self.closed = True


def block(number: int) -> SealedBlock:
    object_id = ObjectId(uuid7(number, lambda size: bytes(size)))
    return seal(OpenBlock(), object_id=object_id, broker_id=NO_BROKER, created_ms=number)


def test_uploads_go_on_beside_each_other_within_a_bound() -> None:
    store = SlowStore()
    with Uploads(cast(ObjectStore, store)) as uploads:
        uploads.add(block(1))
        uploads.add(block(2))
        store.through.set()
        for number in range(3, 9):
            uploads.add(block(number))
        finished = uploads.finish()
    assert [one.key for one in finished] == [block(number).commit.key for number in range(1, 9)]
    assert store.most_at_once == 2
    assert store.closed


def upload(store: SlowStore, blocks: Iterable[SealedBlock]) -> list[BlockToCommit]:
    with Uploads(cast(ObjectStore, store)) as uploads:
        for one in blocks:
            uploads.add(one)
        return uploads.finish()


@pytest.mark.parametrize("failing", [0, 3])
def test_an_upload_that_fails_fails_the_task(failing: int) -> None:
    store = SlowStore(failing)
    store.through.set()
    with pytest.raises(StoreUnavailableError, match="away"):
        upload(store, map(block, range(4)))
    assert store.closed


def test_a_task_that_fails_gives_its_uploads_up() -> None:
    store = SlowStore()

    def blocks() -> Iterator[SealedBlock]:
        yield block(1)
        store.through.set()
        raise ValueError("a bad row")

    with pytest.raises(ValueError, match="a bad row"):
        upload(store, blocks())
    assert store.closed
    assert not any(thread.name == "sink-uploads" for thread in threading.enumerate())


def test_nothing_to_upload_is_nothing_to_commit() -> None:
    assert upload(SlowStore(), []) == []
