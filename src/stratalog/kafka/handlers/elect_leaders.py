"""ElectLeaders: never needed, so every partition is refused with a reason."""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.entries import PartitionName
from stratalog.admin.rights import ALTER_CLUSTER
from stratalog.kafka.handlers.shared.outcomes import outcome_values
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import write_response


class TopicPartitions(NamedTuple):
    topic: str
    partitions: Sequence[int]


class ElectLeadersBody(NamedTuple):
    topic_partitions: Sequence[TopicPartitions] | None


class ElectLeadersHandler(Handler[ElectLeadersBody]):
    key = ApiKey.ELECT_LEADERS
    versions = Versions(0, 2, 2)
    rights = (ALTER_CLUSTER,)
    body = ElectLeadersBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._partitions = components.admin.partitions

    async def handle(self, request: Request, body: ElectLeadersBody) -> Body:
        """A request for all partitions gets an empty list: Kafka leaves out every partition that
        needs no election, and here none does."""
        topics = body.topic_partitions or []
        wanted = [
            PartitionName(asked.topic, index) for asked in topics for index in asked.partitions
        ]
        refusals = iter(await self._partitions.elect_leaders(request.principal, wanted))
        results = [
            {
                "topic": asked.topic,
                "partition_result": [
                    {"partition_id": index, **outcome_values(next(refusals))}
                    for index in asked.partitions
                ],
            }
            for asked in topics
        ]
        values = {"error_code": ErrorCode.none, "replica_election_results": results}
        return write_response(ApiKey.ELECT_LEADERS, request.version, values)
