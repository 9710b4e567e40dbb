"""A consumer with a fetch session beside one without: both see the same, whatever happens.

The handler, the reader and the control plane are real ones. Writes and deletions come through this
broker and through others, whose hints are lost, so that the poll has to find them.
"""

import asyncio
import tempfile
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from kio.schema.errors import ErrorCode
from tests.unit.kafka.handlers.desk import SESSION, Desk, answered, begun, framed, parsed
from tests.unit.kafka.handlers.read_requests import fetch, wanted
from tests.unit.topic.rig import TopicRig, batch

from stratalog.batch.records import iter_records
from stratalog.clock import SystemClock
from stratalog.ids import Offset
from stratalog.kafka.registry import dispatcher
from stratalog.kafka.wire.api import ApiKey

T = TypeVar("T")

PARTITIONS = 4
"""The partition of this number does not exist."""
VERSION = 13
_PARTITION = st.integers(0, PARTITIONS)


class Seen(NamedTuple):
    """The last answer about one partition."""

    code: ErrorCode
    high_watermark: int
    log_start: int


@dataclass
class Consumer:
    """The knowledge of a client, which is kept as Java's is."""

    session_id: int = 0
    epoch: int = 0
    positions: dict[int, int] = field(default_factory=dict)
    seen: dict[int, Seen] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    forgotten: set[int] = field(default_factory=set)

    def begin_again(self) -> None:
        self.session_id, self.epoch = 0, 0
        self.changed, self.forgotten = set(self.positions), set()
        self.seen.clear()

    def move(self, partition: int, offset: int) -> None:
        self.positions[partition] = offset
        self.changed.add(partition)


class FetchSessionMachine(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.loop = asyncio.new_event_loop()
        self.consumer = Consumer()
        self.run(self._open())

    async def _open(self) -> None:
        self.rig = await TopicRig.open(Path(self.folder.name), partitions=PARTITIONS)
        desk = Desk()
        components = replace(
            desk.components,
            control=self.rig.control,
            catalog=self.rig.catalog,
            reader=self.rig.reader,
        )
        self.dispatcher = dispatcher(
            components, clock=SystemClock(), metrics=components.metrics, workplace=desk.workplace
        )
        self.connection = replace(SESSION, at_end={})

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.run(self.rig.close())
        self.loop.close()
        self.folder.cleanup()

    # The topic.

    @rule(partition=st.integers(0, PARTITIONS - 1), count=st.integers(1, 3))
    def write(self, partition: int, count: int) -> None:
        self.run(self.rig.append(partition, batch(*[b"v"] * count)))

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def write_unheard(self, partition: int) -> None:
        with patch.object(self.rig.writer, "_on_commit", lambda _: None):
            self.run(self.rig.append(partition, batch(b"v")))

    @rule(partition=st.integers(0, PARTITIONS - 1), part=st.sampled_from([0.5, 1]))
    def delete_records(self, partition: int, part: float) -> None:
        key = self.rig.part(partition)
        ledger = self.rig.control.inner.log
        end = self.run(ledger.high_watermarks([key]))[key]
        start = self.run(ledger.partitions([key]))[key].log_start
        self.run(ledger.delete_records({key: Offset(start + int((end - start) * part))}))

    # The consumer.

    @rule(partition=_PARTITION, offset=st.integers(0, 8))
    def follow(self, partition: int, offset: int) -> None:
        self.consumer.forgotten.discard(partition)
        self.consumer.move(partition, offset)

    @precondition(lambda self: self.consumer.positions)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        consumer = self.consumer
        partition = data.draw(st.sampled_from(sorted(consumer.positions)))
        del consumer.positions[partition]
        consumer.seen.pop(partition, None)
        consumer.changed.discard(partition)
        consumer.forgotten.add(partition)

    @rule()
    def poll(self) -> None:
        self.run(self._fetch())

    @rule()
    def lose_the_connection(self) -> None:
        self.connection.end()
        self.connection = replace(SESSION, number=self.connection.number + 1, at_end={})
        self.consumer.begin_again()

    @precondition(lambda self: self.consumer.session_id)
    @rule(step=st.sampled_from([-1, 1]))
    def lose_a_fetch(self, step: int) -> None:
        """The broker refuses the epoch, and the client begins again on the same connection."""
        epoch = self.consumer.epoch + step
        if epoch > 0:
            response = self.run(self._ask({}, (), self.consumer.session_id, epoch))
            assert response.error_code is ErrorCode.invalid_fetch_session_epoch
        self.consumer.begin_again()

    @rule()
    def compare(self) -> None:
        """When nothing moves any more, the session has answered all that a full fetch answers."""
        self.run(self._compare())

    async def _compare(self) -> None:
        await self.rig.watermarks._poll()
        while await self._fetch():
            pass
        positions = self.consumer.positions
        response = await self._ask(positions, (), 0, -1, max_wait_ms=0)
        full = dict(_partitions(response))
        assert full.keys() == positions.keys() == self.consumer.seen.keys()
        for partition, answer in full.items():
            assert not answer.records
            assert self.consumer.seen[partition] == _seen(answer), partition

    async def _fetch(self) -> bool:
        """Fetch in the session. True if something moved that the client did not know."""
        consumer = self.consumer
        if not consumer.positions and not consumer.forgotten:
            return False
        asked = {key: consumer.positions[key] for key in sorted(consumer.changed)}
        before = dict(consumer.seen), dict(consumer.positions)
        response = await self._ask(
            asked, sorted(consumer.forgotten), consumer.session_id, consumer.epoch
        )
        assert response.error_code is ErrorCode.none
        consumer.session_id = response.session_id
        consumer.epoch = consumer.epoch + 1 if response.session_id else 0
        consumer.changed.clear()
        consumer.forgotten.clear()
        if not response.session_id:
            consumer.changed = set(consumer.positions)
        for partition, answer in _partitions(response):
            assert partition in consumer.positions
            consumer.seen[partition] = _seen(answer)
            self._receive(partition, answer)
        return (consumer.seen, consumer.positions) != before

    def _receive(self, partition: int, answer: Any) -> None:
        consumer = self.consumer
        position = consumer.positions[partition]
        offsets = [one.offset for one in iter_records(bytes(answer.records or b""))]
        if offsets:
            assert offsets[0] <= position <= offsets[-1]
            assert offsets == list(range(offsets[0], offsets[-1] + 1))
            consumer.move(partition, offsets[-1] + 1)
        elif answer.error_code is ErrorCode.offset_out_of_range:
            consumer.move(partition, answer.log_start_offset)

    async def _ask(
        self,
        positions: Mapping[int, int],
        forgotten: Iterable[int],
        session_id: int,
        epoch: int,
        max_wait_ms: int = 1,
    ) -> Any:
        topic = self.rig.topic
        partitions = [
            {**entry, "partition": partition}
            for partition, offset in positions.items()
            for entry in wanted(topic.name, topic.id, offset)["partitions"]
        ]
        asked = [{"topic": topic.name, "topic_id": topic.id, "partitions": partitions}]
        away = [{"topic": topic.name, "topic_id": topic.id, "partitions": tuple(forgotten)}]
        values = fetch(
            *(asked if partitions else ()),
            session_id=session_id,
            session_epoch=epoch,
            forgotten=away if away[0]["partitions"] else (),
            max_wait_ms=max_wait_ms,
        )
        frame = framed(ApiKey.FETCH, VERSION, {**values, "min_bytes": 1})
        accepted = await begun(self.dispatcher.accept(frame, self.connection))
        try:
            response = await answered(accepted)
        finally:
            accepted.release()
        assert response is not None
        return parsed(ApiKey.FETCH, VERSION, b"".join(response))


def _partitions(response: Any) -> Iterable[tuple[int, Any]]:
    for topic in response.responses:
        for answer in topic.partitions:
            yield answer.partition_index, answer


def _seen(answer: Any) -> Seen:
    return Seen(answer.error_code, answer.high_watermark, answer.log_start_offset)


FetchSessionMachine.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestFetchSessionMachine = FetchSessionMachine.TestCase
