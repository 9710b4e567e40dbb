"""librdkafka's clients, each on a thread of its own."""

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from random import Random
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from stratalog.clock import SYSTEM_CLOCK
from stratalog.testing.checker.client_load import MOVE_CHANCE, POLL_RECORDS, POLL_SECONDS, Load
from stratalog.testing.checker.history import (
    Assign,
    Commit,
    Committed,
    Drained,
    Note,
    OutOfRange,
    Place,
    Poll,
    Position,
    Promise,
    Rebalance,
    Record,
    Seek,
    Stage,
    Subscribe,
)
from stratalog.testing.checker.recorder import Recorder, Sending

_FLUSH_MARGIN_S = 10.0
_WATERMARK_SECONDS = 10.0

_NEVER_STORED = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.TOPIC_AUTHORIZATION_FAILED})
"""Errors of messages that were certainly not stored. Most other errors, even of a purged queue,
leave it open: an earlier attempt may have arrived."""
_FENCED = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError._NO_OFFSET,
    }
)
"""Answers to a commit that certainly did not take effect."""
_NOWHERE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


def client_config(load: Load, **more: Any) -> dict[str, Any]:
    """Configure quick reconnects: a run of a minute has no time for the default back-off."""
    return {
        "bootstrap.servers": load.bootstrap,
        "log_level": 0,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 500,
        "socket.connection.setup.timeout.ms": 3000,
        "socket.timeout.ms": 5000,
        "topic.metadata.refresh.interval.ms": 1000,
        "topic.metadata.refresh.fast.interval.ms": 50,
        **more,
    }


class ConfluentProducer(threading.Thread):
    """A plain or an idempotent producer.

    librdkafka has no ordered one: its limit of requests in flight is one per broker, so that a
    plain producer may overtake itself when a partition's leader changes.
    """

    def __init__(self, load: Load, recorder: Recorder, name: str, promise: Promise) -> None:
        super().__init__(name=name, daemon=True)
        self._load = load
        self._recorder = recorder
        self._promise = promise
        self._random = load.random(name)
        self._incarnations = count()
        self._stopping = threading.Event()
        self._broken = threading.Event()

    def stop(self) -> None:
        """Send no more. The thread ends when the fate of everything is known."""
        self._stopping.set()

    def run(self) -> None:
        while not self._stopping.is_set():
            self._broken.clear()
            name = f"{self.name}.{next(self._incarnations)}"
            self._run_one(Sending(self._recorder, name, self._promise))

    def _run_one(self, sending: Sending) -> None:
        """Send with one producer until the run ends or the producer is broken for good."""
        producer = Producer(self._config())
        pause_s = 1 / self._load.sends_per_second
        while not self._broken.is_set() and not self._stopping.wait(
            self._random.uniform(0, 2 * pause_s)
        ):
            self._send(producer, sending)
            self._serve(lambda: producer.poll(0))
        # A broken producer raises once. The fates of its messages come afterwards.
        if self._broken.is_set() or not self._serve(lambda: producer.flush(self._load.patience_s)):
            producer.purge()
        self._serve(lambda: producer.flush(_FLUSH_MARGIN_S))

    def _serve(self, callbacks: Callable[[], object]) -> bool:
        try:
            callbacks()
        # The binding goes on to call back while its own exception is pending, and that callback
        # then fails inside the interpreter. The fate of its message stays unknown.
        except (KafkaException, SystemError) as error:
            self._note_broken(error)
            return False
        return True

    def _config(self) -> dict[str, Any]:
        idempotent = self._promise is Promise.IDEMPOTENT
        # When librdkafka gives up one message of a batch, it sends the others again under a new
        # epoch, even if the batch was stored. So an idempotent producer gives up nothing.
        timeout_ms = 0 if idempotent else int(self._load.patience_s * 1000)
        return client_config(
            self._load,
            **{
                "acks": "all",
                "enable.idempotence": idempotent,
                "max.in.flight.requests.per.connection": 5,
                "message.timeout.ms": timeout_ms,
                "request.timeout.ms": 3000,
                "retry.backoff.ms": 50,
                "linger.ms": 5,
                "error_cb": self._on_error,
            },
        )

    def _send(self, producer: Producer, sending: Sending) -> None:
        send = sending.begin(self._load.topic, self._random.randrange(self._load.partitions))

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                sending.ok(send, message.offset())
            else:
                sending.failed(send, error, certainly=error.code() in _NEVER_STORED)

        try:
            producer.produce(
                send.topic, send.value.encode(), partition=send.partition, on_delivery=delivered
            )
        except (BufferError, KafkaException) as error:
            sending.failed(send, error, certainly=True)
            self._note_broken(error)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._note_broken(error)

    def _note_broken(self, error: object) -> None:
        if not self._broken.is_set():
            self._recorder.add(Note(what=f"{self.name} must be replaced: {error}"))
        self._broken.set()


class ConfluentConsumer(threading.Thread):
    """Reads all partitions from the start, and moves to another offset now and then."""

    def __init__(self, load: Load, recorder: Recorder, name: str, *, reset: str) -> None:
        super().__init__(name=name, daemon=True)
        self._load = load
        self._recorder = recorder
        self._reset = reset
        self._random = load.random(name)
        self._stopping = threading.Event()
        self._next: dict[int, int] = dict.fromkeys(range(load.partitions), 0)

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        consumer = _open_consumer(self._load, **{"auto.offset.reset": self._reset})
        try:
            self._assign(consumer)
            while not self._stopping.is_set():
                self._poll(consumer)
                if self._random.random() < MOVE_CHANCE:
                    self._move(consumer)
        finally:
            consumer.close()

    def _poll(self, consumer: Consumer) -> None:
        messages = consumer.consume(POLL_RECORDS, POLL_SECONDS)
        records, lost = take_messages(messages)
        if records:
            self._recorder.add(Poll(client=self.name, records=records))
        for record in records:
            self._next[record.partition] = record.offset + 1
        for position in lost:
            self._recorder.add(OutOfRange(client=self.name, position=position))
        if lost:
            self._next = dict.fromkeys(self._next, 0)
            self._assign(consumer)

    def _move(self, consumer: Consumer) -> None:
        partition = self._random.choice(list(self._next))
        known = self._next[partition]
        self._next[partition] = self._random.randint(max(0, known - 2000), known)
        if self._random.random() < 0.5:
            self._assign(consumer)
        else:
            self._seek(consumer, partition)

    def _assign(self, consumer: Consumer) -> None:
        positions = tuple(Position(self._load.topic, *pair) for pair in self._next.items())
        self._recorder.add(Assign(client=self.name, positions=positions))
        consumer.assign(_as_partitions(positions))

    def _seek(self, consumer: Consumer, partition: int) -> None:
        position = Position(self._load.topic, partition, self._next[partition])
        try:
            consumer.seek(*_as_partitions([position]))
        except KafkaException:
            # The consumer may have moved nevertheless. A new assignment leaves no doubt.
            self._assign(consumer)
        else:
            self._recorder.add(Seek(client=self.name, position=position))


class ConfluentMember(threading.Thread):
    """A member of a group, which commits the offsets that it has read."""

    def __init__(self, load: Load, recorder: Recorder, name: str, group: str) -> None:
        super().__init__(name=name, daemon=True)
        self._load = load
        self._recorder = recorder
        self._group = group
        self._random: Random = load.random(name)
        self._incarnations = count()
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        """Leave and come back now and then, so that the group rebalances."""
        while not self._stopping.is_set():
            self._run_one(f"{self.name}.{next(self._incarnations)}")

    def _run_one(self, name: str) -> None:
        topic = self._load.topic
        consumer = _open_consumer(
            self._load,
            **{
                "group.id": self._group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
            },
        )

        def assigned(_: Consumer, given: list[TopicPartition]) -> None:
            places = tuple(Place(each.topic, each.partition) for each in given)
            self._recorder.add(Rebalance(client=name, group=self._group, places=places))

        self._recorder.add(Subscribe(client=name, group=self._group, topics=(topic,)))
        consumer.subscribe([topic], on_assign=assigned)
        clock = SYSTEM_CLOCK
        until = clock.monotonic() + self._random.uniform(5, 30)
        try:
            while not self._stopping.is_set() and clock.monotonic() < until:
                self._poll(consumer, name)
        finally:
            consumer.close()

    def _poll(self, consumer: Consumer, name: str) -> None:
        records, _ = take_messages(consumer.consume(POLL_RECORDS, POLL_SECONDS))
        if not records:
            return
        self._recorder.add(Poll(client=name, records=records))
        ends = {record.place: record.offset + 1 for record in records}
        positions = [Position(*place, end) for place, end in ends.items()]
        self._note_commits(name, positions, Stage.INVOKED)
        self._note_commits(name, positions, _commit(consumer, positions))

    def _note_commits(self, name: str, positions: Sequence[Position], stage: Stage) -> None:
        for position in positions:
            self._recorder.add(
                Commit(client=name, group=self._group, stage=stage, position=position)
            )


def _commit(consumer: Consumer, positions: Sequence[Position]) -> Stage:
    try:
        done = consumer.commit(offsets=_as_partitions(positions), asynchronous=False)
    except KafkaException as error:
        return Stage.FAIL if error.args[0].code() in _FENCED else Stage.UNKNOWN
    return Stage.UNKNOWN if any(each.error for each in done or []) else Stage.OK


def note_committed(load: Load, recorder: Recorder, group: str, seconds: float) -> None:
    """Ask for the committed offsets of the group, after its last commit."""
    consumer = _open_consumer(load, **{"group.id": group})
    try:
        wanted = [TopicPartition(load.topic, each) for each in range(load.partitions)]
        for found in consumer.committed(wanted, timeout=seconds):
            offset = found.offset if found.offset >= 0 else None
            position = Position(found.topic, found.partition, offset)
            recorder.add(Committed(client="judge", group=group, position=position))
    finally:
        consumer.close()


def drain(load: Load, recorder: Recorder, name: str, seconds: float) -> bool:
    """Read everything from the start to the end of the partitions.

    False if nothing came for `seconds`, or if a position is out of range.
    """
    consumer = _open_consumer(load, **{"auto.offset.reset": "error"})
    try:
        return _Drain(load, recorder, name, consumer).run(seconds)
    except KafkaException:
        return False
    finally:
        consumer.close()


class _Drain:
    def __init__(self, load: Load, recorder: Recorder, name: str, consumer: Consumer) -> None:
        self._topic = load.topic
        self._recorder = recorder
        self._name = name
        self._consumer = consumer
        self._next = dict.fromkeys(range(load.partitions), 0)

    def run(self, seconds: float) -> bool:
        clock = SYSTEM_CLOCK
        deadline = clock.monotonic() + seconds
        ends = {partition: self._end(partition, deadline) for partition in self._next}
        starts = tuple(Position(self._topic, partition, 0) for partition in self._next)
        self._recorder.add(Assign(client=self._name, positions=starts))
        self._consumer.assign(_as_partitions(starts))
        deadline = clock.monotonic() + seconds
        while (left := self._left(ends)) > 0:
            if clock.monotonic() > deadline or not self._poll():
                return False
            if self._left(ends) < left:
                deadline = clock.monotonic() + seconds
        told = tuple(Position(self._topic, *pair) for pair in ends.items())
        self._recorder.add(Drained(client=self._name, ends=told))
        return True

    def _left(self, ends: Mapping[int, int]) -> int:
        return sum(max(0, end - self._next[partition]) for partition, end in ends.items())

    def _end(self, partition: int, deadline: float) -> int:
        """Ask until a broker answers: clients need a moment to notice that brokers are back."""
        place = TopicPartition(self._topic, partition)
        while True:
            try:
                _, end = self._consumer.get_watermark_offsets(place, timeout=_WATERMARK_SECONDS)
            except KafkaException:
                if SYSTEM_CLOCK.monotonic() > deadline:
                    raise
            else:
                return int(end)

    def _poll(self) -> bool:
        records, lost = take_messages(self._consumer.consume(POLL_RECORDS, POLL_SECONDS))
        if records:
            self._recorder.add(Poll(client=self._name, records=records))
        for record in records:
            self._next[record.partition] = record.offset + 1
        for position in lost:
            self._recorder.add(OutOfRange(client=self._name, position=position))
        return not lost


def take_messages(messages: Sequence[Message]) -> tuple[tuple[Record, ...], list[Position]]:
    """Sort messages into records and positions out of range.

    Other errors are ignored: librdkafka recovers by itself.
    """
    records: list[Record] = []
    lost: list[Position] = []
    for message in messages:
        error = message.error()
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if topic is None or partition is None:
            continue
        if error is None:
            assert offset is not None
            records.append(Record(topic, partition, offset, (message.value() or b"").decode()))
        elif error.code() in _NOWHERE:
            lost.append(Position(topic, partition, offset))
    return tuple(records), lost


def _open_consumer(load: Load, **more: Any) -> Consumer:
    return Consumer(
        client_config(
            load,
            **{
                "group.id": "checker-assigned",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 200,
                "fetch.error.backoff.ms": 50,
                **more,
            },
        )
    )


def _as_partitions(positions: Sequence[Position]) -> list[TopicPartition]:
    return [
        TopicPartition(
            each.topic, each.partition, OFFSET_BEGINNING if each.offset is None else each.offset
        )
        for each in positions
    ]
