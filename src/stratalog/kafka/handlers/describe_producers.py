"""DescribeProducers: the idempotent producers whose sequences are remembered on a partition."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.rights import Operation, Resource, Right
from stratalog.control.log.model import ActiveProducer
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response

_NO_COORDINATOR_EPOCH = -1


class DescribedTopic(NamedTuple):
    name: str
    partition_indexes: Sequence[int]


class DescribeProducersBody(NamedTuple):
    topics: Sequence[DescribedTopic]


class DescribeProducersHandler(Handler[DescribeProducersBody]):
    key = ApiKey.DESCRIBE_PRODUCERS
    versions = Versions(0, 0, 0)
    rights = (Right(Operation.READ, Resource.TOPIC),)
    body = DescribeProducersBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._catalog = components.catalog
        self._control = components.control

    async def handle(self, request: Request, body: DescribeProducersBody) -> Body:
        topics = await self._catalog.named([asked.name for asked in body.topics])
        keys = {
            (asked.name, index): TopicPartition(topic.id, PartitionIndex(index))
            for asked in body.topics
            if (topic := topics.get(asked.name)) is not None
            for index in asked.partition_indexes
            if 0 <= index < topic.partition_count
        }
        found = await self._control.log.active_producers(list(keys.values()))
        results = [_topic(asked, keys, found) for asked in body.topics]
        return write_response(ApiKey.DESCRIBE_PRODUCERS, request.version, {"topics": results})


def _topic(
    asked: DescribedTopic,
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
