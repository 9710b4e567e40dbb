"""Members of a classic group, one thread each, of three clients behind one face.

Every member reads its partitions and commits at once, so that a test knows the records that the
group as a whole has read and committed.
"""

import asyncio
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from tests.support.clients.client import ANSWER_SECONDS

with warnings.catch_warnings():
    # It reads its schemas by a function that Python 3.11 and 3.12 call deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer

SESSION_MS = 1500
HEARTBEAT_MS = 100
_AWAY = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError._WAIT_COORD,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError._NO_OFFSET,
)


def wait_until(holds: Callable[[], bool], what: Callable[[], object] = lambda: "") -> None:
    deadline = time.monotonic() + ANSWER_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


class Member:
    """One member in a thread of its own. `stop` makes it leave as its client does."""

    name = ""

    def __init__(self, bootstrap: str, group_id: str, topic: str, **more: Any) -> None:
        self.owned: frozenset[int] = frozenset()
        self.read: list[tuple[int, int]] = []
        """Partition and offset of every message, in the order in which they came."""
        self.committed: dict[int, int] = {}
        """The offsets that the broker has acknowledged."""
        self.assignments = 0
        """How often partitions were given to this member."""
        self.failure: BaseException | None = None
        self._bootstrap, self._group_id, self._topic, self._more = bootstrap, group_id, topic, more
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._live, name=f"member-{self.name}")
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(ANSWER_SECONDS)
        if self.failure is not None:
            raise self.failure

    def _live(self) -> None:
        try:
            self._run()
        except BaseException as failure:
            self.failure = failure
        finally:
            self.owned = frozenset()

    def _run(self) -> None:
        raise NotImplementedError

    def _own(self, owned: frozenset[int]) -> None:
        if owned - self.owned:
            self.assignments += 1
        self.owned = owned


class ConfluentMember(Member):
    name = "confluent"

    def _run(self) -> None:
        strategy = self._more.get("strategy", "range")
        instance = self._more.get("instance")
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self._group_id,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": self._more.get("session_ms", SESSION_MS),
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "partition.assignment.strategy": strategy,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
                **({"group.instance.id": instance} if instance else {}),
            }
        )
        consumer.subscribe([self._topic])
        try:
            while not self._stopping.is_set():
                self._poll(consumer)
        finally:
            consumer.close()

    def _poll(self, consumer: Consumer) -> None:
        message = consumer.poll(0.05)
        self._own(frozenset(each.partition for each in consumer.assignment()))
        if message is None:
            return
        error = message.error()
        if error is not None:
            if error.code() not in _AWAY and not error.retriable():
                raise KafkaException(error)
            return
        place = (int(message.partition() or 0), int(message.offset() or 0))
        self.read.append(place)
        if place[1] % 5 == 4:
            self._commit(consumer, *place)

    def _commit(self, consumer: Consumer, partition: int, offset: int) -> None:
        wanted = TopicPartition(self._topic, partition, offset + 1)
        try:
            told = consumer.commit(offsets=[wanted], asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in _AWAY:
                raise
            return
        if told and told[0].error is None:
            self.committed[partition] = offset + 1


class KafkaPythonMember(Member):
    name = "kafka-python"

    def _run(self) -> None:
        consumer = KafkaConsumer(
            self._topic,
            bootstrap_servers=self._bootstrap.split(","),
            group_id=self._group_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=self._more.get("session_ms", SESSION_MS),
            heartbeat_interval_ms=HEARTBEAT_MS,
            reconnect_backoff_max_ms=200,
            metadata_max_age_ms=1000,
            group_instance_id=self._more.get("instance"),
        )
        try:
            while not self._stopping.is_set():
                # Not shorter: a poll that times out at the moment in which the assignment comes
                # loses it, and the client then waits for ever.
                found = consumer.poll(timeout_ms=1000)
                self._own(frozenset(each.partition for each in consumer.assignment()))
                for records in found.values():
                    self.read += [(record.partition, record.offset) for record in records]
                if found:
                    consumer.commit()
                    for records in found.values():
                        self.committed[records[-1].partition] = records[-1].offset + 1
        finally:
            consumer.close()


class AiokafkaMember(Member):
    name = "aiokafka"

    def _run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        consumer = AIOKafkaConsumer(
            self._topic,
            bootstrap_servers=self._bootstrap.split(","),
            group_id=self._group_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=self._more.get("session_ms", SESSION_MS),
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=1000,
            partition_assignment_strategy=[RangePartitionAssignor],
            group_instance_id=self._more.get("instance"),
        )
        try:
            async with consumer:
                while not self._stopping.is_set():
                    found = await consumer.getmany(timeout_ms=50)
                    self._own(frozenset(each.partition for each in consumer.assignment()))
                    for records in found.values():
                        self.read += [(record.partition, record.offset) for record in records]
                    if found:
                        await consumer.commit()
                        for records in found.values():
                            self.committed[records[-1].partition] = records[-1].offset + 1
        except asyncio.CancelledError:
            # Its fetcher, while it waits to try a dead broker again, lets its own cancellation out.
            if not self._stopping.is_set():
                raise
            await consumer._client.close()


MEMBERS: list[type[Member]] = [ConfluentMember, KafkaPythonMember, AiokafkaMember]
