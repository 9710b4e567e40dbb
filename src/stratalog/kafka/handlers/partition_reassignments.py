"""AlterPartitionReassignments and ListPartitionReassignments: none is ever under way, because
brokers keep no data that could be moved."""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.rights import Operation, Resource, Right
from stratalog.control.topics.model import Topic
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response

_REFUSAL = "replicas cannot be assigned: brokers keep no data, and any of them serves"


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
    rights = (Right(Operation.ALTER, Resource.CLUSTER),)
    body = AlterPartitionReassignmentsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._catalog = components.catalog
        self._membership = components.membership

    async def handle(self, request: Request, body: AlterPartitionReassignmentsBody) -> Body:
        topics = await self._catalog.named([asked.name for asked in body.topics])
        results = [
            {
                "name": asked.name,
                "partitions": [
                    self._partition(topics.get(asked.name), one) for one in asked.partitions
                ],
            }
            for asked in body.topics
        ]
        return _altered(request, ErrorCode.none, None, results)

    def _partition(self, topic: Topic | None, one: ReassignablePartition) -> Values:
        index = one.partition_index
        if topic is None or not 0 <= index < topic.partition_count:
            code = ErrorCode.unknown_topic_or_partition
            return _result(index, code, "there is no such partition")
        if one.replicas is None:
            code = ErrorCode.no_reassignment_in_progress
            return _result(index, code, "there is no reassignment to cancel")
        leader = self._membership.leader_of(TopicPartition(topic.id, PartitionIndex(index)))
        if list(one.replicas) != [leader.broker_id]:
            return _result(index, ErrorCode.invalid_replica_assignment, _REFUSAL)
        return _result(index, ErrorCode.none, None)


class ListPartitionReassignmentsBody(NamedTuple):
    """Whatever is asked for, nothing is under way."""


class ListPartitionReassignmentsHandler(Handler[ListPartitionReassignmentsBody]):
    key = ApiKey.LIST_PARTITION_REASSIGNMENTS
    versions = Versions(0, 0, 0)
    rights = (Right(Operation.DESCRIBE, Resource.CLUSTER),)
    body = ListPartitionReassignmentsBody

    async def handle(self, request: Request, body: ListPartitionReassignmentsBody) -> Body:  # noqa: ARG002
        return _listed(request, ErrorCode.none, None)


def _result(index: int, code: ErrorCode, message: str | None) -> Values:
    return {"partition_index": index, "error_code": code, "error_message": message}


def _altered(
    request: Request, code: ErrorCode, message: str | None, results: Sequence[Values]
) -> Body:
    values = {"error_code": code, "error_message": message, "responses": results}
    return write_response(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request.version, values)


def _listed(request: Request, code: ErrorCode, message: str | None) -> Body:
    values: Values = {"error_code": code, "error_message": message, "topics": []}
    return write_response(ApiKey.LIST_PARTITION_REASSIGNMENTS, request.version, values)
