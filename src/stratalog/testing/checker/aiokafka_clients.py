"""aiokafka's clients, as tasks of the run's event loop. The test extra brings aiokafka along."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)

from stratalog.testing.checker.client_load import MOVE_CHANCE, POLL_RECORDS, POLL_SECONDS, Load
from stratalog.testing.checker.history import (
    Assign,
    Note,
    OutOfRange,
    Poll,
    Position,
    Promise,
    Record,
    Seek,
    Send,
)
from stratalog.testing.checker.recorder import Recorder, Sending

_MAX_UNIT = 6
_REOPEN_SECONDS = 0.2
_CLOSE_SECONDS = 5.0


class AiokafkaProducer:
    """Sends whole record batches that it builds itself, and single messages."""

    def __init__(self, load: Load, recorder: Recorder, name: str, promise: Promise) -> None:
        self.name = name
        self._load = load
        self._recorder = recorder
        self._promise = promise
        self._random = load.random(name)
        self._incarnations = count()
        self._units = count()
        self._stopping = asyncio.Event()
        self._answers: set[asyncio.Task[None]] = set()
        self._broken = False

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        while not self._stopping.is_set():
            self._broken = False
            name = f"{self.name}.{next(self._incarnations)}"
            try:
                await self._run_one(Sending(self._recorder, name, self._promise))
            except (KafkaError, OSError):
                await asyncio.sleep(_REOPEN_SECONDS)

    async def _run_one(self, sending: Sending) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._load.bootstrap.split(","),
            acks="all",
            enable_idempotence=self._promise is Promise.IDEMPOTENT,
            request_timeout_ms=int(self._load.patience_s * 1000),
            retry_backoff_ms=50,
            metadata_max_age_ms=1000,
            linger_ms=5,
        )
        try:
            await producer.start()
            pause_s = 1 / self._load.sends_per_second
            while not self._stopping.is_set() and not self._broken:
                sent = await self._send(producer, sending)
                await asyncio.sleep(self._random.uniform(0, 2 * pause_s * sent))
            await asyncio.gather(*self._answers)
        finally:
            with suppress(KafkaError, TimeoutError):
                await asyncio.wait_for(producer.stop(), _CLOSE_SECONDS)

    async def _send(self, producer: AIOKafkaProducer, sending: Sending) -> int:
        """Send one message, or several as one batch. Returns their number."""
        partition = self._random.randrange(self._load.partitions)
        size = self._random.randint(1, _MAX_UNIT)
        unit = f"{sending.client}/{next(self._units)}" if size > 1 else None
        batch = producer.create_batch()
        sends = [sending.begin(self._load.topic, partition, unit=unit) for _ in range(size)]
        for send in sends:
            batch.append(key=None, value=send.value.encode(), timestamp=None)
        try:
            if unit is None:
                answer = await producer.send(
                    self._load.topic, sends[0].value.encode(), partition=partition
                )
            else:
                batch.close()
                answer = await producer.send_batch(batch, self._load.topic, partition=partition)
        except (KafkaError, OSError, AssertionError) as error:
            self._give_up(sending, sends, error)
            return size
        task = asyncio.create_task(self._await_answer(sending, sends, answer))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)
        return size

    async def _await_answer(
        self, sending: Sending, sends: Sequence[Send], answer: "asyncio.Future[Any]"
    ) -> None:
        try:
            told = await answer
        except (KafkaError, OSError, asyncio.CancelledError) as error:
            self._give_up(sending, sends, error)
            return
        for place, send in enumerate(sends):
            sending.ok(send, told.offset + place if told.offset >= 0 else None)

    def _give_up(self, sending: Sending, sends: Sequence[Send], error: BaseException) -> None:
        """Replace a producer that could not deliver, as an application would do."""
        if not self._broken:
            self._recorder.add(Note(what=f"{self.name} must be replaced: {error!r}"))
        self._broken = True
        for send in sends:
            certainly = isinstance(error, MessageSizeTooLargeError)
            sending.failed(send, repr(error), certainly=certainly)


class AiokafkaConsumer:
    """Reads all partitions from the start, and moves to another offset now and then."""

    def __init__(self, load: Load, recorder: Recorder, name: str, *, reset: str) -> None:
        self.name = name
        self._load = load
        self._recorder = recorder
        self._reset = reset
        self._random = load.random(name)
        self._stopping = asyncio.Event()
        self._next = dict.fromkeys(range(load.partitions), 0)

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        while not self._stopping.is_set():
            try:
                await self._run_one()
            except (KafkaError, OSError):
                await asyncio.sleep(_REOPEN_SECONDS)

    async def _run_one(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._load.bootstrap.split(","),
            enable_auto_commit=False,
            auto_offset_reset=self._reset,
            metadata_max_age_ms=1000,
            retry_backoff_ms=50,
            request_timeout_ms=5000,
            fetch_max_wait_ms=200,
        )
        try:
            await consumer.start()
            self._assign(consumer)
            while not self._stopping.is_set():
                await self._poll(consumer)
                if self._random.random() < MOVE_CHANCE:
                    self._move(consumer)
        finally:
            with suppress(KafkaError, TimeoutError):
                await asyncio.wait_for(consumer.stop(), _CLOSE_SECONDS)

    async def _poll(self, consumer: AIOKafkaConsumer) -> None:
        try:
            found = await consumer.getmany(
                timeout_ms=int(POLL_SECONDS * 1000), max_records=POLL_RECORDS
            )
        except (OffsetOutOfRangeError, NoOffsetForPartitionError) as error:
            self._out_of_range(error)
            self._assign(consumer)
            return
        records = tuple(
            Record(each.topic, each.partition, each.offset, (each.value or b"").decode())
            for several in found.values()
            for each in several
        )
        if records:
            self._recorder.add(Poll(client=self.name, records=records))
        for record in records:
            self._next[record.partition] = record.offset + 1

    def _out_of_range(self, error: KafkaError) -> None:
        """Note positions out of range. The error names the partitions, and not the offsets."""
        told = error.args[0] if error.args else ()
        for place in told if isinstance(told, dict | tuple | list) else ():
            offset = self._next.get(place.partition)
            position = Position(place.topic, place.partition, offset)
            self._recorder.add(OutOfRange(client=self.name, position=position))
        self._next = dict.fromkeys(self._next, 0)

    def _assign(self, consumer: AIOKafkaConsumer) -> None:
        positions = tuple(Position(self._load.topic, *pair) for pair in self._next.items())
        self._recorder.add(Assign(client=self.name, positions=positions))
        consumer.assign([TopicPartition(self._load.topic, partition) for partition in self._next])
        for partition, offset in self._next.items():
            consumer.seek(TopicPartition(self._load.topic, partition), offset)

    def _move(self, consumer: AIOKafkaConsumer) -> None:
        partition = self._random.choice(list(self._next))
        known = self._next[partition]
        self._next[partition] = self._random.randint(max(0, known - 2000), known)
        position = Position(self._load.topic, partition, self._next[partition])
        self._recorder.add(Seek(client=self.name, position=position))
        consumer.seek(TopicPartition(self._load.topic, partition), self._next[partition])
