"""Notes of deletions: their contents, their order, and their age."""

import asyncio
import logging
from uuid import UUID

import pytest
from tests.unit.block.rig import GatedStore, TellingClock

from stratalog.clock import SystemClock
from stratalog.ids import Offset, PartitionIndex, TopicId, TopicPartition
from stratalog.objects.errors import StoreUnavailableError
from stratalog.objects.expiry import delete_older
from stratalog.objects.faulty import ScriptedFaults
from stratalog.objects.open import open_store
from stratalog.recovery.deletion_notes import (
    DELETIONS_PREFIX,
    NOTE_AGE_MS,
    DeletionNotes,
    Deletions,
    RecordsNote,
    TopicNote,
    encode_deletions,
    parse_deletions,
    read_deletions,
)

ORDERS = TopicId(UUID(int=7))
KEY = TopicPartition(ORDERS, PartitionIndex(0))


def gated_store() -> GatedStore:
    return GatedStore(open_store("memory:", clock=SystemClock()), ScriptedFaults([]))


async def test_notes_of_all_processes_are_joined() -> None:
    store, clock = gated_store(), TellingClock()
    first, second = DeletionNotes(store, clock=clock), DeletionNotes(store, clock=clock)
    other = TopicPartition(ORDERS, PartitionIndex(1))
    await first.records_deleted({KEY: Offset(5), other: Offset(1)})
    await second.records_deleted({KEY: Offset(3)})
    await second.topics_deleted([ORDERS])
    found, unreadable = await read_deletions(store)
    assert {key: note.before for key, note in found.records.items()} == {KEY: 5, other: 1}
    assert found.is_deleted(ORDERS)
    assert unreadable == []


@pytest.mark.parametrize(
    ("notes", "is_deleted"),
    [
        ([(True, 1), (False, 2)], False),
        ([(False, 1), (True, 2)], True),
        ([(True, 2), (False, 2)], False),
        ([(True, 1)], True),
        ([], False),
    ],
)
def test_the_newest_note_of_a_topic_counts(notes: list[tuple[bool, int]], is_deleted: bool) -> None:
    for ordered in (notes, notes[::-1]):
        deletions = Deletions()
        for note in ordered:
            deletions.add_topic(ORDERS, TopicNote(*note))
        assert deletions.is_deleted(ORDERS) is is_deleted


async def test_puts_of_one_process_do_not_overtake_one_another() -> None:
    store = gated_store()
    notes = DeletionNotes(store, clock=TellingClock())
    store.gated = True
    puts = [asyncio.create_task(notes.records_deleted({KEY: Offset(before)})) for before in (1, 2)]
    (await store.next_put()).set()
    (await store.next_put()).set()
    await asyncio.gather(*puts)
    found, _ = await read_deletions(store)
    assert found.records[KEY].before == 2


async def test_a_store_that_is_away_costs_the_note_and_not_the_deletion(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = gated_store()
    notes = DeletionNotes(store, clock=TellingClock())
    store.failure = StoreUnavailableError("the store is away")
    with caplog.at_level(logging.WARNING):
        await notes.topics_deleted([ORDERS])
    assert "not noted" in caplog.text
    await notes.records_deleted({KEY: Offset(5)})
    found, _ = await read_deletions(store)
    assert found.is_deleted(ORDERS)
    assert KEY in found.records


async def test_nothing_is_put_where_nothing_was_deleted() -> None:
    store = gated_store()
    notes = DeletionNotes(store, clock=TellingClock())
    await notes.records_deleted({})
    await notes.topics_deleted([])
    assert [info.key async for info in store.list("")] == []


async def test_old_notes_are_dropped() -> None:
    store = gated_store()
    deletions = Deletions(records={KEY: RecordsNote(Offset(5), 1000)})
    deletions.forget(1000)
    assert deletions == Deletions()
    await DeletionNotes(store, clock=TellingClock()).topics_deleted([ORDERS])
    now_ms = SystemClock().now_ms()
    assert await delete_older(store, DELETIONS_PREFIX, now_ms - NOTE_AGE_MS) == 0
    assert await delete_older(store, DELETIONS_PREFIX, now_ms + 1000) == 1


def test_a_note_is_read_as_it_was_written() -> None:
    deletions = Deletions(
        records={KEY: RecordsNote(Offset(5), 1)}, topics={ORDERS: TopicNote(False, 2)}
    )
    assert parse_deletions(encode_deletions(deletions)) == deletions


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"format": 2, "records": [], "topics": []}',
        b'{"format": 1, "records": [{"topic": "x"}], "topics": []}',
        b'{"format": 1, "topics": []}',
        b'{"format": 1, "records": [], "topics": [{"topic": 5, "deleted": true, "ms": 1}]}',
        encode_deletions(Deletions(records={KEY: RecordsNote(Offset(-1), 1)})),
        encode_deletions(Deletions(records={KEY: RecordsNote(Offset(1 << 63), 1)})),
    ],
)
def test_a_damaged_note_is_none(data: bytes) -> None:
    assert parse_deletions(data) is None
