"""DescribeProducers: the idempotent producers whose sequences are remembered on a partition."""

from collections.abc import Sequence
from typing import NamedTuple

from stratalog.admin.entries import PartitionName
from stratalog.admin.rights import READ_TOPIC
from stratalog.control.log.model import ActiveProducer
from stratalog.errors import StratalogError
from stratalog.kafka.handlers.shared.outcomes import outcome_values
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
    rights = (READ_TOPIC,)
    body = DescribeProducersBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._partitions = components.admin.partitions

    def is_heavy(self, body: DescribeProducersBody) -> bool:  # noqa: ARG002
        return True

    async def handle(self, request: Request, body: DescribeProducersBody) -> Body:
        wanted = [
            PartitionName(asked.name, index)
            for asked in body.topics
            for index in asked.partition_indexes
        ]
        outcomes = iter(await self._partitions.active_producers(request.principal, wanted))
        topics = [
            {
                "name": asked.name,
                "partitions": [
                    _partition(index, next(outcomes)) for index in asked.partition_indexes
                ],
            }
            for asked in body.topics
        ]
        return write_response(ApiKey.DESCRIBE_PRODUCERS, request.version, {"topics": topics})


def _partition(index: int, outcome: Sequence[ActiveProducer] | StratalogError) -> Values:
    producers = () if isinstance(outcome, StratalogError) else outcome
    return {
        "partition_index": index,
        **outcome_values(outcome),
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
