"""OffsetDelete: a group forgets offsets of topics that none of its members reads."""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.rights import Operation, Resource, Right
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.kafka.handlers.shared.group_names import check_group_id
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
    rights = (Right(Operation.DELETE, Resource.GROUP), Right(Operation.READ, Resource.TOPIC))
    body = OffsetDeleteBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._groups = components.groups
        self._catalog = components.catalog

    async def handle(self, request: Request, body: OffsetDeleteBody) -> Body:
        check_group_id(body.group_id, may_be_empty=True)
        is_deletable = await self._groups.deletable_offsets(body.group_id)
        topics = await self._catalog.refreshed([asked.name for asked in body.topics])
        doomed = []
        answers = []
        for asked in body.topics:
            partitions = []
            for one in asked.partitions:
                code = ErrorCode.none
                topic = topics.get(asked.name)
                if topic is None or not 0 <= one.partition_index < topic.partition_count:
                    code = ErrorCode.unknown_topic_or_partition
                elif not is_deletable(asked.name):
                    code = ErrorCode.group_subscribed_to_topic
                else:
                    doomed.append(TopicPartition(topic.id, PartitionIndex(one.partition_index)))
                partitions.append({"partition_index": one.partition_index, "error_code": code})
            answers.append({"name": asked.name, "partitions": partitions})
        if doomed:
            await self._groups.delete_offsets(body.group_id, doomed)
        values = {"error_code": ErrorCode.none, "topics": answers}
        return write_response(ApiKey.OFFSET_DELETE, request.version, values)

    def error_code(self, error: Exception) -> ErrorCode:
        return group_code_of(error)
