"""ElectLeaders: never needed, so every partition is refused with a reason."""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.entries import PartitionName
from stratalog.admin.rights import ALTER_CLUSTER
from stratalog.kafka.handlers.shared.outcomes import outcome_values
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import message_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response


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
        refusals = await self._partitions.elect_leaders(request.principal, wanted)
        return _response(request, body, ErrorCode.none, map(outcome_values, refusals))

    def refuse(self, request: Request, body: ElectLeadersBody, error: Exception) -> Body:
        """As in Kafka, the error stands at the top and at each partition."""
        code = self.error_code(error)
        outcome = {"error_code": code, "error_message": message_of(error)}
        return _response(request, body, code, repeat(outcome))


def _response(
    request: Request, body: ElectLeadersBody, code: ErrorCode, outcomes: Iterator[Values]
) -> Body:
    """`outcomes` come in the order of the requested partitions."""
    results = [
        {
            "topic": asked.topic,
            "partition_result": [
                {"partition_id": index, **next(outcomes)} for index in asked.partitions
            ],
        }
        for asked in body.topic_partitions or []
    ]
    values = {"error_code": code, "replica_election_results": results}
    return write_response(ApiKey.ELECT_LEADERS, request.version, values)
