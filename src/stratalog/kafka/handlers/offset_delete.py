"""OffsetDelete: a group forgets offsets of topics that none of its members reads."""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.entries import PartitionName
from stratalog.admin.rights import DELETE_GROUP, READ_TOPIC
from stratalog.kafka.handlers.shared.outcomes import outcome_code
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import group_code_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import write_response


class OffsetDeletePartition(NamedTuple):
    partition_index: int


class OffsetDeleteTopic(NamedTuple):
    name: str
    partitions: Sequence[OffsetDeletePartition]


class OffsetDeleteBody(NamedTuple):
    group_id: str
    topics: Sequence[OffsetDeleteTopic]


class OffsetDeleteHandler(Handler[OffsetDeleteBody]):
    key = ApiKey.OFFSET_DELETE
    versions = Versions(0, 0, 1)
    rights = (DELETE_GROUP, READ_TOPIC)
    body = OffsetDeleteBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._groups = components.admin.groups

    def is_heavy(self, body: OffsetDeleteBody) -> bool:  # noqa: ARG002
        return True

    async def handle(self, request: Request, body: OffsetDeleteBody) -> Body:
        wanted = [
            PartitionName(asked.name, one.partition_index)
            for asked in body.topics
            for one in asked.partitions
        ]
        outcomes = iter(await self._groups.delete_offsets(request.principal, body.group_id, wanted))
        topics = [
            {
                "name": asked.name,
                "partitions": [
                    {
                        "partition_index": one.partition_index,
                        "error_code": outcome_code(next(outcomes)),
                    }
                    for one in asked.partitions
                ],
            }
            for asked in body.topics
        ]
        values = {"error_code": ErrorCode.none, "topics": topics}
        return write_response(ApiKey.OFFSET_DELETE, request.version, values)

    def error_code(self, error: Exception) -> ErrorCode:
        return group_code_of(error)
