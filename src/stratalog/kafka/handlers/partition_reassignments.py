"""AlterPartitionReassignments and ListPartitionReassignments: none is ever under way, because
brokers keep no data that could be moved."""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.entries import PartitionName
from stratalog.admin.partitions import Reassignment
from stratalog.admin.rights import ALTER_CLUSTER, DESCRIBE_CLUSTER
from stratalog.kafka.handlers.shared.outcomes import outcome_values
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response


class ReassignablePartition(NamedTuple):
    partition_index: int
    replicas: Sequence[int] | None


class ReassignableTopic(NamedTuple):
    name: str
    partitions: Sequence[ReassignablePartition]


class AlterPartitionReassignmentsBody(NamedTuple):
    topics: Sequence[ReassignableTopic]


class AlterPartitionReassignmentsHandler(Handler[AlterPartitionReassignmentsBody]):
    key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    versions = Versions(0, 1, 0)
    rights = (ALTER_CLUSTER,)
    body = AlterPartitionReassignmentsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._partitions = components.admin.partitions

    async def handle(self, request: Request, body: AlterPartitionReassignmentsBody) -> Body:
        wanted = [
            Reassignment(
                partition=PartitionName(asked.name, one.partition_index), replicas=one.replicas
            )
            for asked in body.topics
            for one in asked.partitions
        ]
        outcomes = iter(await self._partitions.reassign(request.principal, wanted))
        responses = [
            {
                "name": asked.name,
                "partitions": [
                    {"partition_index": one.partition_index, **outcome_values(next(outcomes))}
                    for one in asked.partitions
                ],
            }
            for asked in body.topics
        ]
        values = {"error_code": ErrorCode.none, "error_message": None, "responses": responses}
        return write_response(self.key, request.version, values)


class ListPartitionReassignmentsBody(NamedTuple):
    """The partitions that a client asks about make no difference."""


class ListPartitionReassignmentsHandler(Handler[ListPartitionReassignmentsBody]):
    key = ApiKey.LIST_PARTITION_REASSIGNMENTS
    versions = Versions(0, 0, 0)
    rights = (DESCRIBE_CLUSTER,)
    body = ListPartitionReassignmentsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._partitions = components.admin.partitions

    async def handle(self, request: Request, body: ListPartitionReassignmentsBody) -> Body:  # noqa: ARG002
        assert not self._partitions.reassignments(request.principal)
        values: Values = {"error_code": ErrorCode.none, "error_message": None, "topics": []}
        return write_response(self.key, request.version, values)
