"""DescribeLogDirs: how many bytes each partition holds.

Brokers have no log directories, but monitoring and quotas ask for sizes here. Each broker tells
of the partitions it leads, so that the sum over all brokers counts every partition once. The one
directory is the object store, whose room nobody knows.
"""

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.control.model import PartitionState, Topic
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.kafka.api import ApiKey
from stratalog.kafka.components import Components
from stratalog.kafka.config_description import LOG_DIR
from stratalog.kafka.error_codes import code_of
from stratalog.kafka.handler import Body
from stratalog.kafka.request import Request
from stratalog.kafka.schema_writer import Values, write_response

_UNKNOWN_BYTES = -1


class DescribeLogDirsHandler:
    def __init__(self, components: Components) -> None:
        self._catalog = components.catalog
        self._control = components.control
        self._membership = components.membership

    async def handle(self, request: Request, body: Any) -> Body:
        led = await self._led(body)
        states = await self._control.partitions(list(led))
        by_topic: dict[str, list[Values]] = {}
        for key, state in states.items():
            by_topic.setdefault(led[key], []).append(_partition(state))
        topics = [{"name": name, "partitions": found} for name, found in sorted(by_topic.items())]
        return _response(request, ErrorCode.none, topics)

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:  # noqa: ARG002
        return _response(request, code_of(error), [])

    async def _led(self, body: Any) -> dict[TopicPartition, str]:
        """The asked partitions that this broker leads, with the names of their topics."""
        if body.topics is None:
            topics = await self._catalog.all()
            wanted = [(topic, range(topic.partition_count)) for topic in topics]
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


def _keys(topic: Topic, indexes: Any) -> list[TopicPartition]:
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
