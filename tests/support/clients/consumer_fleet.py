"""Members of a consumer group with the new protocol, polled in turn by one thread.

Partitions change hands inside `poll` alone, so the partitions of a member are known exactly at
every moment,
and it is checked at every moment that no two own the same.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from tests.support.clients.client import ANSWER_SECONDS

Owned = set[tuple[str, int]]


class FleetMember:
    def __init__(self, bootstrap: str, group_id: str, topics: list[str], **more: Any) -> None:
        self.owned: Owned = set()
        self.values: list[bytes] = []
        self.errors: list[KafkaError] = []
        self.given_up: Owned = set()
        """The partitions that it had to release."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group_id,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
                "reconnect.backoff.max.ms": 300,
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in more.items()},
            }
        )
        self._consumer.subscribe(
            topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def poll(self) -> None:
        message = self._consumer.poll(0.01)
        if message is None:
            return
        error = message.error()
        if error is not None:
            self.errors.append(error)
            return
        self.values.append(message.value())  # type: ignore[arg-type]
        self._consumer.commit(message=message, asynchronous=True)

    def was_told(self, code: int) -> bool:
        """Errors that end a consumer carry the broker's as text alone."""
        return any(
            error.code() == code or KafkaError(code).str() in error.str() for error in self.errors
        )

    def commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        asked = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        for each in self._consumer.commit(offsets=asked, asynchronous=False) or []:
            assert each.error is None, each.error

    def committed(self, topic: str, partition: int) -> int:
        (found,) = self._consumer.committed([TopicPartition(topic, partition)], ANSWER_SECONDS)
        return int(found.offset)

    def close(self) -> None:
        self._consumer.close()
        self.owned.clear()

    def _assigned(self, consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        consumer.incremental_assign(list(partitions))
        self.owned |= _places(partitions)

    def _revoked(self, consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        consumer.incremental_unassign(list(partitions))
        self.owned -= _places(partitions)
        self.given_up |= _places(partitions)

    def _lost(self, consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        self._revoked(consumer, partitions)


def _places(partitions: Iterable[TopicPartition]) -> Owned:
    return {(each.topic, each.partition) for each in partitions}


class Fleet(AbstractContextManager["Fleet"]):
    def __init__(self, bootstrap: str, group_id: str) -> None:
        self.bootstrap = bootstrap
        self.group_id = group_id
        self.members: list[FleetMember] = []

    def add(self, *topics: str, **more: Any) -> FleetMember:
        member = FleetMember(self.bootstrap, self.group_id, list(topics), **more)
        self.members.append(member)
        return member

    def close(self, member: FleetMember) -> None:
        self.members.remove(member)
        member.close()

    @property
    def values(self) -> list[bytes]:
        return [value for member in self.members for value in member.values]

    @property
    def loads(self) -> list[int]:
        return sorted(len(member.owned) for member in self.members)

    def run_until(self, holds: Callable[[], bool], seconds: float = ANSWER_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, [
                (member.owned, len(member.values), member.errors) for member in self.members
            ]
            self._poll()

    def settle(self, *loads: int) -> None:
        """Until the members own so many partitions each, in no particular order."""
        self.run_until(lambda: self.loads == sorted(loads))

    def run_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._poll()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in self.members:
            member.close()

    def _poll(self) -> None:
        for member in self.members:
            member.poll()
            owned = [place for each in self.members for place in each.owned]
            assert len(owned) == len(set(owned)), "two members own one partition"
