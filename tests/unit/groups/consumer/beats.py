"""Heartbeats, topics and groups to test with."""

from collections.abc import Iterable
from uuid import UUID

from stratalog.groups.consumer.group import ConsumerGroup, Limits
from stratalog.groups.consumer.heartbeat import Heartbeat, HeartbeatAnswer
from stratalog.groups.consumer.model import GroupState, Partitions, TopicShape
from stratalog.groups.consumer.subscriptions import TopicsFound, TopicsWanted, compiled
from stratalog.ids import PartitionIndex, TopicId, TopicPartition

LIMITS = Limits(session_ms=45_000, max_members=3, look_ms=1000)
REBALANCE_MS = 10_000


def shape(name: str, count: int) -> TopicShape:
    identifier = UUID(bytes=name.encode().rjust(16, b"\0"))
    return TopicShape(topic_id=TopicId(identifier), name=name, partition_count=count)


def parts(topic: TopicShape, *indexes: int) -> Partitions:
    return frozenset(TopicPartition(topic.topic_id, PartitionIndex(each)) for each in indexes)


ORDERS = shape("orders", 4)
USERS = shape("users", 2)


class Bench:
    """A group, a clock that is moved by hand, and the topics that exist."""

    def __init__(self, *topics: TopicShape, limits: Limits = LIMITS) -> None:
        self.now_s = 100.0
        self.topics: Iterable[TopicShape] = topics or (ORDERS, USERS)
        self.group = ConsumerGroup("g", limits, state=GroupState(), now_s=self.now_s)

    def join(
        self,
        member_id: str,
        *names: str,
        pattern: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
    ) -> HeartbeatAnswer:
        return self.send(
            member_id,
            0,
            instance_id=instance_id,
            rebalance_timeout_ms=REBALANCE_MS,
            topic_names=frozenset(names or ((ORDERS.name,) if pattern is None else ())),
            topic_pattern=pattern,
            assignor=assignor,
            owned=frozenset(),
        )

    def send(
        self,
        member_id: str,
        epoch: int,
        *,
        instance_id: str | None = None,
        rebalance_timeout_ms: int = -1,
        topic_names: frozenset[str] | None = None,
        topic_pattern: str | None = None,
        assignor: str | None = None,
        owned: Partitions | None = None,
    ) -> HeartbeatAnswer:
        beat = Heartbeat(
            group_id="g",
            member_id=member_id,
            epoch=epoch,
            instance_id=instance_id,
            rebalance_timeout_ms=rebalance_timeout_ms,
            topic_names=topic_names,
            topic_pattern=topic_pattern,
            assignor=assignor,
            owned=owned,
        )
        found = found_of(self.group.wants(beat), self.topics)
        looks = self.group.must_look(beat, self.now_s)
        return self.group.heartbeat(beat, found if looks else None, self.now_s)

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        self.group.tick(self.now_s)


def found_of(asked: TopicsWanted, topics: Iterable[TopicShape]) -> TopicsFound:
    """The answer of a lookup among these topics."""
    by_name = {topic.name: topic for topic in topics}
    matches = {
        pattern: frozenset(filter(compiled(pattern).matches, by_name)) for pattern in asked.patterns
    }
    return TopicsFound(asked=asked, topics=by_name, matches=matches)
