"""Clients of a simulated cluster. Their requests and the answers go into a history."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, TypeVar

from tests.simulation.nodes import Broker, ConnectionLostError
from tests.support.appends import durable

from stratalog.batch.build import build_batch
from stratalog.batch.records import Record, iter_records
from stratalog.block.errors import BlockFailedError, BrokerStoppingError
from stratalog.control.log.errors import OffsetOutOfRangeError
from stratalog.control.log.model import Span
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.errors import DamagedError, RetriableError, StratalogError
from stratalog.ids import Offset, PartitionIndex, ProducerId
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.testing.checker import history
from stratalog.testing.checker.history import Event, Promise, Restored, Send, Stage, WentBack
from stratalog.testing.simulation import Network, Process
from stratalog.topic.append import PendingAppend
from stratalog.topic.errors import OutOfOrderSequenceError, RowMissingError
from stratalog.topic.model import PartitionWrite, PartitionWritten

T = TypeVar("T")

REQUEST_TIMEOUT_S = 6.0
_IN_FLIGHT_GAP_S = 0.0005
"""Between an answer and the next request of a closed loop: so soon that its block waits for it."""
_MOST_IN_BURST = 5
"""A burst is answered as a whole. A client that hears nothing sends all of it again, and so many
batches of a producer are remembered."""
_SURE_FAILURES = (BlockFailedError, BrokerStoppingError, RetriableError)
"""After these a batch is not in the log and never will be."""


class UnansweredError(Exception):
    """The client got no answer: its request may or may not have taken effect."""


@dataclass
class Clients:
    """All clients, on machines that do not fail."""

    process: Process
    network: Network
    brokers: Sequence[Broker]
    random: Random
    clock_ms: Callable[[], int]
    grace_ms: int
    history: list[Event] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    deleted: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    """The highest offset below which a client asked for the deletion of a partition's records."""
    batch_bytes: dict[tuple[str, int, int], int] = field(default_factory=dict)
    connections: Iterator[int] = field(default_factory=count)
    turns: int = 0
    """How often an older control plane took the place of the newest one, or gave it back."""
    is_over: bool = False
    is_healed: bool = False
    """No answer that was damaged on its way can arrive any more."""

    def turn(self, event: WentBack | Restored) -> None:
        self.turns += 1
        self.history.append(event)

    async def ask(self, broker: Broker, work: Callable[[Broker], Coroutine[Any, Any, T]]) -> T:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await self.network.call(
                    self.process,
                    broker.machine.name,
                    "request",
                    lambda: broker.serve(work),
                    refused=UnansweredError,
                    unknown=UnansweredError,
                )
        except (TimeoutError, ConnectionLostError) as error:
            raise UnansweredError(str(error)) from None

    def any_broker(self) -> Broker:
        return self.random.choice(self.brokers)

    async def pause(self, mean_s: float) -> None:
        await asyncio.sleep(self.random.expovariate(1 / mean_s))


@dataclass
class _Batch:
    values: list[str]
    sequence: int
    unit: str


class Producer:
    def __init__(
        self,
        clients: Clients,
        name: str,
        topic: Topic,
        partition: int,
        *,
        producer_id: int | None,
        pause_s: float,
        in_flight: int | None = None,
    ) -> None:
        self._clients = clients
        self._name = name
        self._topic = topic
        self._partition = partition
        self._producer_id = producer_id
        self._pause_s = pause_s
        self._broker = clients.any_broker()
        self._count = 0
        self._sequence = 0
        self._connection = next(clients.connections)
        self._in_flight = in_flight
        """Requests without an answer that a closed loop may have. None sends by the clock."""
        self.promise = Promise.ORDERED if producer_id is None else Promise.IDEMPOTENT

    async def run(self) -> None:
        while not self._clients.is_over:
            await self._clients.pause(self._pause_s)
            if self._producer_id is None:
                await self._send_once()
            else:
                self._restart_sometimes()
                most = 4 if self._in_flight is None else _MOST_IN_BURST
                burst = [self._batch() for _ in range(self._clients.random.randint(1, most))]
                await self._send_all(deque(burst))

    def _restart_sometimes(self) -> None:
        """Go on under a new id, as a producer does that was started again."""
        assert self._producer_id is not None
        if self._clients.random.random() < 0.25:
            self._producer_id += 1000
            self._sequence = 0

    async def _send_once(self) -> None:
        batch = self._batch()
        try:
            [answer] = await self._send([batch])
        except UnansweredError as error:
            self._done(batch, Stage.UNKNOWN, error=str(error))
            self._broker = self._clients.any_broker()
            return
        if answer.error is None:
            self._done(batch, Stage.OK, answer.base_offset)
        elif isinstance(answer.error, _SURE_FAILURES):
            self._done(batch, Stage.FAIL, error=repr(answer.error))
        else:
            self._done(batch, Stage.UNKNOWN, error=repr(answer.error))

    async def _send_all(self, waiting: "deque[_Batch]") -> None:
        """Send in order, again and again from the first that was not acknowledged."""
        is_first_try = True
        while waiting:
            try:
                answers = await self._send(list(waiting))
            except UnansweredError:
                self._broker = self._clients.any_broker()
                is_first_try = False
                await self._clients.pause(0.1)
                continue
            self._take(waiting, answers, is_first_try=is_first_try)
            if waiting:
                is_first_try = False
                if self._clients.random.random() < 0.3:
                    self._broker = self._clients.any_broker()
                await self._clients.pause(0.1)

    def _take(
        self,
        waiting: "deque[_Batch]",
        answers: Sequence[PartitionWritten],
        *,
        is_first_try: bool,
    ) -> None:
        for place, answer in enumerate(answers):
            if answer.error is not None:
                if place == 0 and isinstance(answer.error, OutOfOrderSequenceError):
                    self._clients.violations.append(
                        f"sequence-lost: {self._name} was refused sequence"
                        f" {waiting[0].sequence}, although all before it was acknowledged"
                    )
                    waiting.clear()
                return
            batch = waiting.popleft()
            offset = answer.base_offset if answer.base_offset >= 0 else None
            self._done(batch, Stage.OK, offset)

    async def _send(self, batches: Sequence[_Batch]) -> list[PartitionWritten]:
        now_ms = self._clients.clock_ms()
        writes = [self._write(batch, now_ms) for batch in batches]
        gap_s = _IN_FLIGHT_GAP_S if self._in_flight else self._clients.random.random() * 0.2

        async def append(broker: Broker) -> list[PartitionWritten]:
            """Requests of one connection: they come one after the other, in order."""
            accepted: list[PendingAppend | StratalogError] = []
            for number, write in enumerate(writes):
                if self._in_flight and number >= self._in_flight:
                    oldest = await _answer(accepted[number - self._in_flight])
                    if oldest.error is not None:
                        break
                if number:
                    await broker.machine.process.clock.sleep(gap_s)
                accepted.append(await _accept(broker, write, self._connection))
            return [await _answer(one) for one in accepted]

        return await self._clients.ask(self._broker, append)

    def _batch(self) -> _Batch:
        size = self._clients.random.randint(1, 3)
        values = [f"{self._name}:{self._count + n}" for n in range(size)]
        batch = _Batch(values, self._sequence, f"{self._name}#{self._count}")
        self._count += size
        self._sequence += size
        for value in values:
            self._clients.history.append(self._event(value, Stage.INVOKED, batch))
        return batch

    def _write(self, batch: _Batch, now_ms: int) -> PartitionWrite:
        records = [
            Record(place, now_ms, None, value.encode() + b"." * 60)
            for place, value in enumerate(batch.values)
        ]
        data = (
            build_batch(records)
            if self._producer_id is None
            else build_batch(
                records,
                producer_id=ProducerId(self._producer_id),
                producer_epoch=0,
                base_sequence=batch.sequence,
            )
        )
        return PartitionWrite(
            topic=self._topic,
            partition=PartitionIndex(self._partition),
            data=memoryview(bytearray(data)),
        )

    def _done(
        self, batch: _Batch, stage: Stage, base: int | None = None, error: str | None = None
    ) -> None:
        for place, value in enumerate(batch.values):
            offset = None if base is None else base + place
            self._clients.history.append(self._event(value, stage, batch, offset, error))

    def _event(
        self,
        value: str,
        stage: Stage,
        batch: _Batch,
        offset: int | None = None,
        error: str | None = None,
    ) -> Send:
        return Send(
            client=self._name,
            stage=stage,
            topic=self._topic.name,
            partition=self._partition,
            value=value,
            offset=offset,
            promise=self.promise,
            unit=batch.unit,
            error=error,
        )


async def _accept(
    broker: Broker, write: PartitionWrite, connection: int
) -> PendingAppend | StratalogError:
    """Take one produce request, as the handler of Kafka's API does: a failure is an answer."""
    assert broker.appender is not None
    try:
        return await broker.appender.append([write], connection)
    except StratalogError as error:
        return error


async def _answer(accepted: PendingAppend | StratalogError) -> PartitionWritten:
    if isinstance(accepted, StratalogError):
        return PartitionWritten(error=accepted)
    [written] = await durable(accepted)
    return written


class Consumer:
    """Reads all partitions of some topics, from the beginning, one dense sequence each."""

    def __init__(self, clients: Clients, name: str, topics: Sequence[Topic]) -> None:
        self._clients = clients
        self._name = name
        self._topics = {topic.id: topic for topic in topics}
        self._next = {
            (topic.id, partition): 0
            for topic in topics
            for partition in range(topic.partition_count)
        }
        self._broker = clients.any_broker()
        self._asked_ms = 0
        self._asked_in_turn = 0
        positions = tuple(
            history.Position(self._topics[key].name, partition, 0) for key, partition in self._next
        )
        clients.history.append(history.Assign(client=name, positions=positions))

    async def run(self) -> None:
        while not self._clients.is_over:
            if self._clients.random.random() < 0.1:
                self._broker = self._clients.any_broker()
            if self._clients.random.random() < 0.05:
                await self._clients.pause(2.0)
            await self.poll(max_wait_ms=700)

    async def poll(self, *, max_wait_ms: int, broker: Broker | None = None) -> bool:
        """Read on; False if there was nothing."""
        spans = [
            Span(
                topic_id=topic_id,
                partition=PartitionIndex(partition),
                offset=Offset(offset),
                max_bytes=self._clients.random.choice([1, 300, 2000, 100_000]),
            )
            for (topic_id, partition), offset in self._next.items()
        ]
        self._asked_ms = self._clients.clock_ms()
        self._asked_in_turn = self._clients.turns

        async def read(broker: Broker) -> list[Any]:
            assert broker.reader is not None
            return await broker.reader.read(
                spans, max_bytes=100_000, min_bytes=1, max_wait_ms=max_wait_ms
            )

        try:
            answers = await self._clients.ask(broker or self._broker, read)
        except (UnansweredError, StratalogError):
            self._broker = self._clients.any_broker()
            await self._clients.pause(0.1)
            return True
        return self._take(spans, answers)

    def _take(self, spans: Sequence[Span], answers: Sequence[Any]) -> bool:
        records: list[history.Record] = []
        moved = False
        for span, answer in zip(spans, answers, strict=True):
            key = (span.topic_id, int(span.partition))
            if answer.error is not None:
                moved |= self._fail(key, answer)
                continue
            for record in self._records(answer):
                if record.offset >= self._next[key] or records:
                    self._add(records, key, record)
            moved |= self._next[key] > span.offset
        if records:
            self._clients.history.append(history.Poll(client=self._name, records=tuple(records)))
        return moved

    def _records(self, answer: Any) -> list[Any]:
        try:
            return [*iter_records(b"".join(answer.parts))]
        except DamagedError as error:
            self._clients.violations.append(f"damaged: {self._name} got records with {error}")
            return []

    def _add(self, records: list[history.Record], key: Any, record: Any) -> None:
        topic = self._topics[key[0]]
        if record.offset < self._next[key]:
            # The first batch may begin before the offset that was asked for.
            return
        value = bytes(record.value).rstrip(b".").decode(errors="replace")
        records.append(history.Record(topic.name, key[1], record.offset, value))
        if record.offset != self._next[key]:
            self._clients.violations.append(
                f"not-dense: {self._name} read offset {record.offset} of"
                f" {topic.name}-{key[1]} where {self._next[key]} is next"
            )
        self._next[key] = record.offset + 1

    def _fail(self, key: Any, answer: Any) -> bool:
        topic = self._topics[key[0]]
        if isinstance(answer.error, OffsetOutOfRangeError):
            position = history.Position(topic.name, key[1], self._next[key])
            if topic.name == "trimmed" and answer.log_start > self._next[key]:
                self._next[key] = int(answer.log_start)
                to = history.Position(topic.name, key[1], self._next[key])
                self._clients.history.append(history.Seek(client=self._name, position=to))
            else:
                event = history.OutOfRange(client=self._name, position=position)
                self._clients.history.append(event)
        elif self._is_violation(answer.error):
            self._clients.violations.append(f"unreadable: {answer.error!r}")
        else:
            self._clients.history.append(history.Note(what=f"{self._name}: {answer.error!r}"))
        return True

    def _is_violation(self, error: Exception) -> bool:
        if self._clients.turns % 2 or self._clients.turns != self._asked_in_turn:
            # An older control plane names objects that were deleted, rightly, since.
            return not isinstance(error, StratalogError)
        if isinstance(error, RowMissingError):
            return True
        if isinstance(error, ObjectNotFoundError):
            # A read looks twice. At each look its objects were referred to, so that they were
            # there for another grace period.
            took_ms = self._clients.clock_ms() - self._asked_ms
            return took_ms < 2 * self._clients.grace_ms
        if isinstance(error, DamagedError):
            return self._clients.is_healed or not self._clients.network.damaged_answers
        return not isinstance(error, StratalogError)

    async def drain(self, broker: Broker) -> None:
        """Read to the ends, with nothing broken any more. An offset that fails stops the reader."""
        moved = True
        while moved:
            before = dict(self._next)
            await self.poll(max_wait_ms=0, broker=broker)
            moved = before != self._next
        self._drained()

    def _drained(self) -> None:
        ends = tuple(
            history.Position(self._topics[key].name, partition, offset)
            for (key, partition), offset in self._next.items()
        )
        self._clients.history.append(history.Drained(client=self._name, ends=ends))


class Rereader(Consumer):
    """Reads everything from the start, again and again: segments more often than blocks."""

    async def run(self) -> None:
        while not self._clients.is_over:
            if not await self.poll(max_wait_ms=0) or self._clients.random.random() < 0.05:
                await self._clients.pause(0.2)
                self._begin_again()

    def _begin_again(self) -> None:
        self._broker = self._clients.any_broker()
        for key, partition in self._next:
            self._next[key, partition] = 0
            position = history.Position(self._topics[key].name, partition, 0)
            self._clients.history.append(history.Seek(client=self._name, position=position))


class Deleter:
    """Deletes records now and then, as a broker does for its clients."""

    def __init__(
        self,
        clients: Clients,
        control: ControlPlane,
        topic: Topic,
        pause_s: float,
        most_kept: int,
    ) -> None:
        self._clients = clients
        self._control = control
        self._topic = topic
        self._pause_s = pause_s
        self._most_kept = most_kept

    async def run(self) -> None:
        while not self._clients.is_over:
            await self._clients.pause(self._pause_s)
            partition = self._clients.random.randrange(self._topic.partition_count)
            with suppress(StratalogError):
                await self._delete(partition)

    async def _delete(self, partition: int) -> None:
        [state] = [
            state
            for state in await self._control.log.topic_partitions(self._topic.id)
            if state.partition == partition
        ]
        kept = self._clients.random.randint(0, self._most_kept)
        offset = max(0, state.high_watermark - kept)
        key = (self._topic.name, partition)
        self._clients.deleted[key] = max(self._clients.deleted[key], offset)
        await self._control.log.delete_records({state.topic_partition: Offset(offset)})
