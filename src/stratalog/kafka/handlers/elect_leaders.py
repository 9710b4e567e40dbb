"""ElectLeaders: never needed. Which broker a partition is written through follows from which
brokers live, and any of them takes any write."""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.rights import Operation, Resource, Right
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response

_NOT_NEEDED = "leaders follow from the brokers that are alive: there is nothing to elect"
_UNKNOWN = "there is no such partition"


class TopicPartitions(NamedTuple):
    topic: str
    partitions: Sequence[int]


class ElectLeadersBody(NamedTuple):
    topic_partitions: Sequence[TopicPartitions] | None


class ElectLeadersHandler(Handler[ElectLeadersBody]):
    key = ApiKey.ELECT_LEADERS
    versions = Versions(0, 2, 2)
    rights = (Right(Operation.ALTER, Resource.CLUSTER),)
    body = ElectLeadersBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._catalog = components.catalog

    async def handle(self, request: Request, body: ElectLeadersBody) -> Body:
        """Asked for all partitions, Kafka leaves out those that need no election: all of them."""
        asked_topics = body.topic_partitions or []
        topics = await self._catalog.named([asked.topic for asked in asked_topics])
        results = []
        for asked in asked_topics:
            count = topics[asked.topic].partition_count if asked.topic in topics else 0
            partitions = [
                _partition(index, ErrorCode.election_not_needed, _NOT_NEEDED)
                if 0 <= index < count
                else _partition(index, ErrorCode.unknown_topic_or_partition, _UNKNOWN)
                for index in asked.partitions
            ]
            results.append({"topic": asked.topic, "partition_result": partitions})
        return _response(request, ErrorCode.none, results)


def _response(request: Request, code: ErrorCode, results: Sequence[Values]) -> Body:
    values = {"error_code": code, "replica_election_results": results}
    return write_response(ApiKey.ELECT_LEADERS, request.version, values)


def _partition(index: int, code: ErrorCode, message: str) -> Values:
    return {"partition_id": index, "error_code": code, "error_message": message}
