"""AlterPartitionReassignments and ListPartitionReassignments: none is ever under way, because
brokers keep no data that could be moved."""

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.control.model import Topic
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.kafka.api import ApiKey
from stratalog.kafka.components import Components
from stratalog.kafka.error_codes import code_of, message_of
from stratalog.kafka.handler import Body
from stratalog.kafka.request import Request
from stratalog.kafka.schema_writer import Values, write_response

_REFUSAL = "replicas cannot be assigned: brokers keep no data, and any of them serves"


class AlterPartitionReassignmentsHandler:
    def __init__(self, components: Components) -> None:
        self._catalog = components.catalog
        self._membership = components.membership

    async def handle(self, request: Request, body: Any) -> Body:
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

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:  # noqa: ARG002
        return _altered(request, code_of(error), message_of(error), [])

    def _partition(self, topic: Topic | None, one: Any) -> Values:
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


class ListPartitionReassignmentsHandler:
    async def handle(self, request: Request, body: Any) -> Body:  # noqa: ARG002
        return _listed(request, ErrorCode.none, None)

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:  # noqa: ARG002
        return _listed(request, code_of(error), message_of(error))


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
