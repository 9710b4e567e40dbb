"""DescribeTopicPartitions: topics page by page. The cursor marks the start of the next page."""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.rights import DESCRIBE_TOPIC, Resource
from stratalog.control.topics.model import Topic
from stratalog.errors import CallError
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.kafka.handlers.shared.authorized_operations import authorized_operations
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response

_MOST_PARTITIONS = 2000
"""The bound of one page, as in Kafka, even if the client asks for more."""


class _Position(NamedTuple):
    topic: str
    partition: int


class AskedTopic(NamedTuple):
    name: str


class Cursor(NamedTuple):
    topic_name: str
    partition_index: int


class DescribeTopicPartitionsBody(NamedTuple):
    topics: Sequence[AskedTopic]
    response_partition_limit: int
    cursor: Cursor | None


class DescribeTopicPartitionsHandler(Handler[DescribeTopicPartitionsBody]):
    key = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    versions = Versions(0, 0, 0)
    rights = (DESCRIBE_TOPIC,)
    body = DescribeTopicPartitionsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._catalog = components.catalog
        self._membership = components.membership
        self._authorizer = components.admin.authorizer

    def is_heavy(self, body: DescribeTopicPartitionsBody) -> bool:  # noqa: ARG002
        return True

    async def handle(self, request: Request, body: DescribeTopicPartitionsBody) -> Body:
        start = _start(body)
        topics = await self._wanted(body, start)
        room = min(body.response_partition_limit, _MOST_PARTITIONS)
        results: list[Values] = []
        for name, topic in topics:
            if room <= 0:
                return _response(request, results, _Position(name, 0))
            if topic is None:
                results.append(_failed(name, ErrorCode.unknown_topic_or_partition))
                continue
            first = start.partition if name == start.topic else 0
            end = min(topic.partition_count, first + room)
            results.append(self._described(request, topic, range(first, end)))
            room -= max(end - first, 0)
            if end < topic.partition_count:
                return _response(request, results, _Position(name, end))
        return _response(request, results, None)

    async def _wanted(
        self, body: DescribeTopicPartitionsBody, start: _Position
    ) -> Sequence[tuple[str, Topic | None]]:
        """The requested topics from the cursor on, by name. A request without names means all."""
        if body.topics:
            names = sorted({asked.name for asked in body.topics})
            found = await self._catalog.named(names)
            wanted = [(name, found.get(name)) for name in names]
        else:
            wanted = [(topic.name, topic) for topic in await self._catalog.all()]
        return [(name, topic) for name, topic in wanted if name >= start.topic]

    def _described(self, request: Request, topic: Topic, indexes: range) -> Values:
        return {
            "error_code": ErrorCode.none,
            "name": topic.name,
            "topic_id": topic.id,
            "partitions": [self._partition(topic, index) for index in indexes],
            # As Kafka does, for every client: this request has no flag to ask by.
            "topic_authorized_operations": authorized_operations(
                self._authorizer, request.principal, Resource.TOPIC, topic.name
            ),
        }

    def _partition(self, topic: Topic, index: int) -> Values:
        leader = self._membership.leader_of(TopicPartition(topic.id, PartitionIndex(index)))
        return {
            "error_code": ErrorCode.none,
            "partition_index": index,
            "leader_id": leader.broker_id,
            "leader_epoch": topic.leader_epochs.get(PartitionIndex(index), 0),
            "replica_nodes": (leader.broker_id,),
            "isr_nodes": (leader.broker_id,),
            "eligible_leader_replicas": (),
            "last_known_elr": (),
            "offline_replicas": (),
        }


def _start(body: DescribeTopicPartitionsBody) -> _Position:
    if body.response_partition_limit < 1:
        raise CallError(
            f"a page cannot hold {body.response_partition_limit} partitions: the least is 1"
        )
    if body.cursor is None:
        return _Position("", 0)
    if body.cursor.partition_index < 0:
        raise CallError(f"partition {body.cursor.partition_index} of the cursor is negative")
    return _Position(body.cursor.topic_name, body.cursor.partition_index)


def _failed(name: str, code: ErrorCode) -> Values:
    return {"error_code": code, "name": name, "topic_id": None, "partitions": []}


def _response(request: Request, topics: Sequence[Values], following: _Position | None) -> Body:
    cursor = None
    if following is not None:
        cursor = {"topic_name": following.topic, "partition_index": following.partition}
    values = {"topics": topics, "next_cursor": cursor}
    return write_response(ApiKey.DESCRIBE_TOPIC_PARTITIONS, request.version, values)
