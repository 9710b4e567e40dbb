"""The rules of fetch sessions (KIP-227), asked with the messages of clients."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.kafka.handlers.desk import Desk, Held
from tests.unit.kafka.handlers.read_requests import ORDERS, fetch, wanted

from stratalog.control.errors import ControlUnavailableError
from stratalog.ids import LeaderEpoch, PartitionIndex, TopicId, TopicPartition
from stratalog.kafka.fetches.session import LAST_EPOCH
from stratalog.kafka.fetches.sessions import PLACE_BYTES
from stratalog.kafka.server.work import LIGHT_ENTRIES
from stratalog.kafka.wire.api import ApiKey
from stratalog.settings import MIB, BrokerSettings, FetchSettings, Settings

VERSIONS = range(7, 19)
OTHER = UUID(int=2)
END = 10


async def opened(**settings: Any) -> Desk:
    desk = Desk(settings=Settings(**settings))
    for name in ("orders", "other"):
        await desk.control.topics.create(name, partition_count=1000, configs={})
    return desk


@pytest.fixture
async def desk() -> Desk:
    return await opened()


class Consumer:
    """A client with a connection of its own, and a session if it gets one."""

    def __init__(self, desk: Desk, version: int = 13, number: int = 1) -> None:
        self.desk = desk
        self.version = version
        self.session_id = 0
        self.epoch = 0
        self.connection = replace(desk.session, number=number, at_end={})

    async def begin(self, *offsets: int, **more: Any) -> dict[int, Any]:
        return await self.fetch(dict(enumerate(offsets)), **more)

    async def fetch(self, offsets: Mapping[int, int] | None = None, **more: Any) -> dict[int, Any]:
        """Fetch in the session, and return the partitions of the answer by number."""
        response = await self.ask(offsets or {}, **more)
        assert response.error_code is ErrorCode.none
        self.session_id = response.session_id
        self.epoch += 1
        return {
            one.partition_index: one for topic in response.responses for one in topic.partitions
        }

    async def ask(
        self,
        offsets: Mapping[int, int],
        *,
        forgotten: tuple[int, ...] = (),
        topic: str = "orders",
        leader_epoch: int = -1,
        **more: Any,
    ) -> Any:
        topic_id = ORDERS if topic == "orders" else OTHER
        partitions = [
            {**entry, "partition": index}
            for index, offset in offsets.items()
            for entry in wanted(topic, topic_id, offset, epoch=leader_epoch)["partitions"]
        ]
        asked = [{"topic": topic, "topic_id": topic_id, "partitions": partitions}]
        away = [{"topic": topic, "topic_id": topic_id, "partitions": forgotten}]
        request = {"session_id": self.session_id, "session_epoch": self.epoch, **more}
        return await self.desk.ask_on(
            self.connection,
            "c",
            ApiKey.FETCH,
            self.version,
            **fetch(*(asked if partitions else ()), forgotten=away if forgotten else (), **request),
        )

    def looked_at(self) -> list[tuple[int, int]]:
        """The partitions and offsets of the last read."""
        spans, *_ = self.desk.reads.asked[-1]
        return [(span.partition, span.offset) for span in spans]

    def stir(self, *partitions: int) -> None:
        for partition in partitions:
            self.desk.reads.marks._forget(part(partition))


def part(partition: int) -> TopicPartition:
    return TopicPartition(TopicId(ORDERS), PartitionIndex(partition))


def events(desk: Desk) -> dict[str, float]:
    samples = desk.metrics.registry.collect()
    return {
        sample.labels["event"]: sample.value
        for family in samples
        for sample in family.samples
        if sample.name == "stratalog_fetch_sessions_total"
    }


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_full_fetch_begins_a_session_and_is_answered_in_full(
    desk: Desk, version: int
) -> None:
    consumer = Consumer(desk, version)
    answer = await consumer.begin(5, END, 77)
    assert consumer.session_id > 0
    assert bytes(answer[0].records) == b"some records"
    assert (answer[1].records, answer[1].high_watermark) == (b"", END)
    assert answer[2].error_code is ErrorCode.offset_out_of_range


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_fetch_without_news_names_no_partition_and_looks_at_none(
    desk: Desk, version: int
) -> None:
    consumer = Consumer(desk, version)
    await consumer.begin(*[END] * 100)
    session_id = consumer.session_id
    for _ in range(3):
        assert await consumer.fetch() == {}
        assert consumer.looked_at() == []
    assert consumer.session_id == session_id


@pytest.mark.parametrize("version", VERSIONS)
async def test_only_changed_partitions_are_looked_at_and_answered(desk: Desk, version: int) -> None:
    consumer = Consumer(desk, version)
    await consumer.begin(END, END, END, END)
    assert list(await consumer.fetch({1: 7})) == [1]
    assert consumer.looked_at() == [(1, 7)]
    consumer.stir(2)
    assert await consumer.fetch({1: END}) == {}
    assert sorted(consumer.looked_at()) == [(1, END), (2, END)]
    assert await consumer.fetch() == {}
    assert consumer.looked_at() == []


async def test_moved_boundaries_are_news_once(desk: Desk) -> None:
    consumer = Consumer(desk)
    await consumer.begin(END, END, END)
    desk.reads.own = {0: Held(end=END, start=5), 1: Held(end=END + 1, data=b"")}
    consumer.stir(0, 1, 2)
    answer = await consumer.fetch()
    assert sorted(answer) == [0, 1]
    assert (answer[0].log_start_offset, answer[1].high_watermark) == (5, END + 1)
    consumer.stir(0, 1, 2)
    assert await consumer.fetch() == {}


async def test_a_partition_with_more_records_is_read_on_without_being_named(desk: Desk) -> None:
    consumer = Consumer(desk)
    await consumer.begin(5, END)
    for _ in range(3):
        assert list(await consumer.fetch()) == [0]
        assert consumer.looked_at() == [(0, 5)]


async def test_an_error_is_told_again_and_again_and_its_end_too(desk: Desk) -> None:
    consumer = Consumer(desk)
    await consumer.begin(END)
    desk.reads.error = ControlUnavailableError("away")
    consumer.stir(0)
    for _ in range(2):
        answer = await consumer.fetch()
        assert answer[0].error_code is ErrorCode.kafka_storage_error
    desk.reads.error = None
    answer = await consumer.fetch()
    assert (answer[0].error_code, answer[0].high_watermark) == (ErrorCode.none, END)
    assert await consumer.fetch() == {}


async def test_a_topic_that_is_not_there_is_looked_for_with_every_fetch(desk: Desk) -> None:
    consumer = Consumer(desk)
    topic = desk.control.by_id.pop(TopicId(OTHER))
    for _ in range(2):
        answer = await consumer.fetch({0: END}, topic="other")
        assert answer[0].error_code is ErrorCode.unknown_topic_id
    desk.control.by_id[topic.id] = topic
    assert (await consumer.fetch())[0].error_code is ErrorCode.none
    assert await consumer.fetch() == {}


async def test_partitions_are_added_and_forgotten(desk: Desk) -> None:
    consumer = Consumer(desk)
    await consumer.begin(END, END)
    assert list(await consumer.fetch({2: END, 3: END}, forgotten=(0,))) == [2, 3]
    assert sorted(desk.reads.marks.watched) == [part(1), part(2), part(3)]
    consumer.stir(1)
    await consumer.fetch()
    assert consumer.looked_at() == [(1, END)]


async def test_a_session_ends_with_its_last_partition(desk: Desk) -> None:
    consumer = Consumer(desk)
    await consumer.begin(END)
    assert await consumer.fetch(forgotten=(0,)) == {}
    assert consumer.session_id == 0
    assert desk.reads.marks.watched == []


@pytest.mark.parametrize("epoch", [2, 5, -7])
async def test_a_wrong_epoch_is_refused_and_does_no_harm(desk: Desk, epoch: int) -> None:
    consumer = Consumer(desk)
    await consumer.begin(5)
    response = await consumer.ask({}, session_epoch=epoch)
    assert response.error_code is ErrorCode.invalid_fetch_session_epoch
    assert (response.responses, response.session_id) == ((), 0)
    assert list(await consumer.fetch()) == [0]


async def test_a_fetch_that_comes_twice_is_refused(desk: Desk) -> None:
    consumer = Consumer(desk)
    await consumer.begin(5)
    await consumer.fetch()
    response = await consumer.ask({}, session_epoch=1)
    assert response.error_code is ErrorCode.invalid_fetch_session_epoch


async def test_after_the_last_epoch_comes_the_first(desk: Desk) -> None:
    consumer = Consumer(desk)
    await consumer.begin(5)
    [session] = desk.fetch_sessions._by_connection.values()
    consumer.epoch = session.epoch = LAST_EPOCH
    await consumer.fetch()
    consumer.epoch = 1
    assert list(await consumer.fetch()) == [0]


@pytest.mark.parametrize(("session_id", "epoch"), [(0, 1), (7, 1)])
async def test_an_unknown_session_is_not_found(desk: Desk, session_id: int, epoch: int) -> None:
    response = await Consumer(desk).ask({0: 5}, session_id=session_id, session_epoch=epoch)
    assert response.error_code is ErrorCode.fetch_session_id_not_found
    assert (response.responses, response.session_id) == ((), 0)
    assert desk.reads.asked == []


async def test_another_session_of_the_connection_is_not_found_and_its_own_stays(desk: Desk) -> None:
    consumer = Consumer(desk)
    await consumer.begin(5)
    response = await consumer.ask({}, session_id=consumer.session_id ^ 1)
    assert response.error_code is ErrorCode.fetch_session_id_not_found
    assert list(await consumer.fetch()) == [0]


async def test_a_session_is_found_on_its_own_connection_only(desk: Desk) -> None:
    owner, stranger = Consumer(desk, number=1), Consumer(desk, number=2)
    await owner.begin(5)
    response = await stranger.ask({}, session_id=owner.session_id, session_epoch=1)
    assert response.error_code is ErrorCode.fetch_session_id_not_found
    assert list(await owner.fetch()) == [0]


@pytest.mark.parametrize(("first", "second"), [(12, 13), (13, 12)])
async def test_a_session_goes_by_names_or_by_ids(desk: Desk, first: int, second: int) -> None:
    consumer = Consumer(desk, first)
    await consumer.begin(5)
    consumer.version = second
    response = await consumer.ask({})
    assert response.error_code is ErrorCode.fetch_session_topic_id_error


async def test_the_last_fetch_of_a_session_ends_it(desk: Desk) -> None:
    consumer = Consumer(desk)
    await consumer.begin(5)
    answer = await consumer.fetch({0: 6}, session_epoch=-1)
    assert (list(answer), consumer.session_id) == ([0], 0)
    assert events(desk) == {"begun": 1, "ended": 1}
    assert desk.reads.marks.watched == []


async def test_a_fetch_of_no_partition_is_answered_at_once(desk: Desk) -> None:
    """Java's consumers end their sessions so."""
    consumer = Consumer(desk)
    await consumer.begin(END)
    assert await consumer.fetch(session_epoch=-1) == {}
    assert len(desk.reads.asked) == 1
    assert events(desk) == {"begun": 1, "ended": 1}


async def test_a_full_fetch_begins_anew(desk: Desk) -> None:
    consumer = Consumer(desk)
    await consumer.begin(5, 5)
    old = consumer.session_id
    consumer.epoch = 0
    assert list(await consumer.fetch({1: END})) == [1]
    assert consumer.session_id not in (0, old)
    assert desk.reads.marks.watched == [part(1)]
    assert await consumer.fetch() == {}


async def test_a_fetch_outside_the_session_leaves_it_alone(desk: Desk) -> None:
    """Kafka's rule for a fetch of epoch -1 that names no session."""
    consumer = Consumer(desk)
    await consumer.begin(END)
    response = await consumer.ask({3: 5}, session_id=0, session_epoch=-1)
    assert (response.session_id, len(response.responses)) == (0, 1)
    assert await consumer.fetch() == {}


@pytest.mark.parametrize("version", [4, 6])
async def test_old_versions_know_no_sessions(desk: Desk, version: int) -> None:
    await desk.ask(ApiKey.FETCH, version, **fetch(wanted("orders", ORDERS, 5)))
    assert events(desk) == {}


async def test_a_partition_that_was_read_goes_behind_the_others(desk: Desk) -> None:
    consumer = Consumer(desk)
    await consumer.begin(5, 5, 5)
    desk.reads.own = {1: Held(data=b"")}
    await consumer.fetch()
    assert [index for index, _ in consumer.looked_at()] == [0, 1, 2]
    await consumer.fetch()
    assert [index for index, _ in consumer.looked_at()] == [1, 0, 2]


async def test_a_new_isolation_level_wakes_all_partitions(desk: Desk) -> None:
    consumer = Consumer(desk)
    await consumer.begin(END, END)
    await consumer.fetch(isolation=1)
    assert len(consumer.looked_at()) == 2
    await consumer.fetch(isolation=1)
    assert consumer.looked_at() == []


async def test_a_new_leader_epoch_is_told(desk: Desk) -> None:
    consumer = Consumer(desk)
    await consumer.fetch({0: END}, leader_epoch=0)
    known = desk.control.by_id[TopicId(ORDERS)]
    epochs = {PartitionIndex(0): LeaderEpoch(1)}
    desk.control.by_id[known.id] = replace(known, leader_epochs=epochs)
    desk.components.catalog.forget(known.id)
    consumer.stir(0)
    answer = await consumer.fetch()
    assert answer[0].error_code is ErrorCode.fenced_leader_epoch
    answer = await consumer.fetch({0: END}, leader_epoch=1)
    assert answer[0].error_code is ErrorCode.none


async def test_many_partitions_that_wake_at_once_make_a_fetch_heavy(desk: Desk) -> None:
    """It waits in the lane, and not for longer than it may hold memory."""
    consumer = Consumer(desk)
    await consumer.begin(*[END] * LIGHT_ENTRIES)
    await consumer.fetch({LIGHT_ENTRIES: END})
    for stirred, waited_ms in ((LIGHT_ENTRIES, 60_000), (LIGHT_ENTRIES + 1, 5000)):
        consumer.stir(*range(stirred))
        await consumer.fetch(max_wait_ms=60_000)
        assert desk.reads.asked[-1][3] == waited_ms


async def test_a_fetch_that_fails_ends_its_session(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise ControlUnavailableError("away")

    consumer = Consumer(desk)
    await consumer.begin(5)
    with monkeypatch.context() as broken:
        broken.setattr(desk.reads, "read", fail)
        response = await consumer.ask({})
    assert response.error_code is ErrorCode.kafka_storage_error
    consumer.epoch = 1
    response = await consumer.ask({})
    assert response.error_code is ErrorCode.fetch_session_id_not_found
    assert desk.reads.marks.watched == []


# Slots and memory.


def held_bytes(desk: Desk) -> int:
    return desk.fetch_sessions._memory.used_bytes


async def test_a_session_is_freed_with_its_connection(desk: Desk) -> None:
    consumer = Consumer(desk)
    await consumer.begin(5, 5)
    assert held_bytes(desk) == 2 * PLACE_BYTES
    await consumer.fetch({7: 5})
    assert held_bytes(desk) == 3 * PLACE_BYTES
    consumer.connection.end()
    assert held_bytes(desk) == 0
    assert desk.reads.marks.watched == []
    assert events(desk) == {"begun": 1, "ended": 1}


async def test_a_connection_has_one_session(desk: Desk) -> None:
    consumer = Consumer(desk)
    for _ in range(5):
        consumer.epoch = 0
        await consumer.begin(5, 5)
    assert held_bytes(desk) == 2 * PLACE_BYTES
    assert events(desk) == {"begun": 5, "ended": 4}


async def test_without_a_slot_a_fetch_has_no_session() -> None:
    desk = await opened(fetch=FetchSettings(sessions=1))
    first, second = Consumer(desk, number=1), Consumer(desk, number=2)
    await first.begin(5)
    assert list(await second.begin(5, 5)) == [0, 1]
    assert second.session_id == 0
    assert events(desk) == {"begun": 1, "refused": 1}
    assert list(await first.fetch()) == [0]


async def test_sessions_can_be_switched_off() -> None:
    desk = await opened(fetch=FetchSettings(sessions=0))
    consumer = Consumer(desk)
    assert list(await consumer.begin(5)) == [0]
    assert consumer.session_id == 0


@pytest.mark.parametrize(("unused_s", "is_evicted"), [(120, False), (121, True)])
async def test_a_session_that_is_not_used_makes_room(unused_s: int, is_evicted: bool) -> None:
    desk = await opened(fetch=FetchSettings(sessions=2))
    unused, used, new = (Consumer(desk, number=number) for number in range(3))
    await used.begin(5)
    await unused.begin(5)
    await desk.clock.advance(unused_s)
    await used.fetch()
    await new.begin(5)
    assert bool(new.session_id) is is_evicted
    assert events(desk).get("evicted", 0) == is_evicted
    response = await unused.ask({})
    assert (response.error_code is ErrorCode.fetch_session_id_not_found) is is_evicted
    assert list(await used.fetch()) == [0]


@pytest.mark.parametrize(
    ("age_s", "size", "is_evicted"), [(121, 3, True), (121, 2, False), (120, 3, False)]
)
async def test_an_old_session_gives_way_to_a_larger_one(
    age_s: int, size: int, is_evicted: bool
) -> None:
    desk = await opened(fetch=FetchSettings(sessions=2))
    small, large, new = (Consumer(desk, number=number) for number in range(3))
    await large.begin(*[5] * 4)
    await small.begin(*[5] * 2)
    await desk.clock.advance(age_s)
    await small.fetch()
    await large.fetch()
    await new.begin(*[5] * size)
    assert bool(new.session_id) is is_evicted
    response = await small.ask({})
    assert (response.error_code is ErrorCode.fetch_session_id_not_found) is is_evicted


async def test_the_memory_of_sessions_is_bounded() -> None:
    """A quarter of it is 256 KiB, of which an eighth is kept for small claims."""
    desk = await opened(broker=BrokerSettings(request_memory_bytes=MIB))
    first, second, third = (Consumer(desk, number=number) for number in range(3))
    await first.begin(*[5] * 200)
    assert first.session_id
    assert len(await second.begin(*[5] * 200)) == 200
    assert second.session_id == 0
    await third.begin(*[5] * 50)
    assert third.session_id
    response = await third.ask(dict.fromkeys(range(50, 250), 5))
    assert response.error_code is ErrorCode.fetch_session_id_not_found
    assert held_bytes(desk) == 200 * PLACE_BYTES


async def test_a_session_does_not_grow_beyond_the_entries_of_a_request() -> None:
    desk = await opened(broker=BrokerSettings(max_request_entries=10))
    consumer = Consumer(desk)
    await consumer.begin(*[5] * 8)
    await consumer.fetch({8: 5, 9: 5})
    response = await consumer.ask({10: 5})
    assert response.error_code is ErrorCode.fetch_session_id_not_found
    assert held_bytes(desk) == 0
