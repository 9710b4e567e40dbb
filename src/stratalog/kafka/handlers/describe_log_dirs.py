"""DescribeLogDirs: how many bytes each partition holds.

Brokers have no log directories, but monitoring and quotas ask for sizes here. Each broker tells
of the partitions it leads, so that the sum over all brokers counts every partition once. The one
directory is the object store, whose room nobody knows.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.config_description import LOG_DIR
from stratalog.admin.rights import Operation, Resource, Right
from stratalog.control.log.model import PartitionState
from stratalog.control.topics.model import Topic
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import code_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response

_UNKNOWN_BYTES = -1


class DescribableLogDirTopic(NamedTuple):
    topic: str
    partitions: Sequence[int]


class DescribeLogDirsBody(NamedTuple):
    topics: Sequence[DescribableLogDirTopic] | None


class DescribeLogDirsHandler(Handler[DescribeLogDirsBody]):
    key = ApiKey.DESCRIBE_LOG_DIRS
    versions = Versions(1, 4, 2)
    rights = (Right(Operation.DESCRIBE, Resource.CLUSTER),)
    body = DescribeLogDirsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._catalog = components.catalog
        self._control = components.control
        self._membership = components.membership

    async def handle(self, request: Request, body: DescribeLogDirsBody) -> Body:
        led = await self._led(body)
        states = await self._control.log.partitions(list(led))
        by_topic: dict[str, list[Values]] = {}
        for key, state in states.items():
            by_topic.setdefault(led[key], []).append(_partition(state))
        topics = [{"name": name, "partitions": found} for name, found in sorted(by_topic.items())]
        return _response(request, ErrorCode.none, topics)

    def refuse(self, request: Request, body: DescribeLogDirsBody, error: Exception) -> Body:  # noqa: ARG002
        return _response(request, code_of(error), [])

    async def _led(self, body: DescribeLogDirsBody) -> dict[TopicPartition, str]:
        """The asked partitions that this broker leads, with the names of their topics."""
        if body.topics is None:
            topics = await self._catalog.all()
            wanted: list[tuple[Topic, Sequence[int]]] = [
                (topic, range(topic.partition_count)) for topic in topics
            ]
        else:
            named = await self._catalog.named([asked.topic for asked in body.topics])
            wanted = [
                (named[asked.topic], asked.partitions)
                for asked in body.topics
                if asked.topic in named
            ]
        return {
            key: topic.name
            for topic, indexes in wanted
            for key in _keys(topic, indexes)
            if self._membership.leader_of(key).broker_id == self._membership.broker_id
        }


def _keys(topic: Topic, indexes: Sequence[int]) -> list[TopicPartition]:
    return [
        TopicPartition(topic.id, PartitionIndex(index))
        for index in indexes
        if 0 <= index < topic.partition_count
    ]


def _partition(state: PartitionState) -> Values:
    return {
        "partition_index": state.partition,
        "partition_size": state.size_bytes,
        "offset_lag": 0,
        "is_future_key": False,
    }


def _response(request: Request, code: ErrorCode, topics: Sequence[Values]) -> Body:
    directory = {
        "error_code": code,
        "log_dir": LOG_DIR,
        "topics": topics,
        "total_bytes": _UNKNOWN_BYTES,
        "usable_bytes": _UNKNOWN_BYTES,
    }
    values = {"error_code": code, "results": [directory]}
    return write_response(ApiKey.DESCRIBE_LOG_DIRS, request.version, values)
