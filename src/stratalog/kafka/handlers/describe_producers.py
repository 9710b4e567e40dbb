"""DescribeProducers: the idempotent producers whose sequences are remembered on a partition."""

from collections.abc import Mapping, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.control.model import ActiveProducer
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.kafka.api import ApiKey
from stratalog.kafka.components import Components
from stratalog.kafka.error_codes import code_of, message_of
from stratalog.kafka.handler import Body
from stratalog.kafka.request import Request
from stratalog.kafka.schema_writer import Values, write_response

_NO_COORDINATOR_EPOCH = -1


class DescribeProducersHandler:
    def __init__(self, components: Components) -> None:
        self._catalog = components.catalog
        self._control = components.control

    async def handle(self, request: Request, body: Any) -> Body:
        topics = await self._catalog.named([asked.name for asked in body.topics])
        keys = {
            (asked.name, index): TopicPartition(topic.id, PartitionIndex(index))
            for asked in body.topics
            if (topic := topics.get(asked.name)) is not None
            for index in asked.partition_indexes
            if 0 <= index < topic.partition_count
        }
        found = await self._control.active_producers(list(keys.values()))
        results = [_topic(asked, keys, found) for asked in body.topics]
        return write_response(ApiKey.DESCRIBE_PRODUCERS, request.version, {"topics": results})

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:
        results = [
            {
                "name": asked.name,
                "partitions": [
                    _failed(index, code_of(error), message_of(error))
                    for index in asked.partition_indexes
                ],
            }
            for asked in body.topics
        ]
        return write_response(ApiKey.DESCRIBE_PRODUCERS, request.version, {"topics": results})


def _topic(
    asked: Any,
    keys: Mapping[tuple[str, int], TopicPartition],
    found: Mapping[TopicPartition, Sequence[ActiveProducer]],
) -> Values:
    return {
        "name": asked.name,
        "partitions": [
            _partition(index, found[keys[asked.name, index]])
            if (asked.name, index) in keys
            else _failed(
                index,
                ErrorCode.unknown_topic_or_partition,
                f"there is no partition {index} of topic {asked.name!r}",
            )
            for index in asked.partition_indexes
        ],
    }


def _partition(index: int, producers: Sequence[ActiveProducer]) -> Values:
    return {
        "partition_index": index,
        "error_code": ErrorCode.none,
        "error_message": None,
        "active_producers": [
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.last_ms,
                "coordinator_epoch": _NO_COORDINATOR_EPOCH,
            }
            for producer in producers
        ],
    }


def _failed(index: int, code: ErrorCode, message: str) -> Values:
    return {
        "partition_index": index,
        "error_code": code,
        "error_message": message,
        "active_producers": [],
    }
