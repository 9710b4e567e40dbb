"""OffsetDelete: a group forgets offsets of topics that none of its members reads."""

from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.kafka.api import ApiKey
from stratalog.kafka.components import Components
from stratalog.kafka.error_codes import group_code_of
from stratalog.kafka.group_names import check_group_id
from stratalog.kafka.handler import Body
from stratalog.kafka.request import Request
from stratalog.kafka.schema_writer import write_response


class OffsetDeleteHandler:
    def __init__(self, components: Components) -> None:
        self._groups = components.groups
        self._catalog = components.catalog

    async def handle(self, request: Request, body: Any) -> Body:
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

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:  # noqa: ARG002
        values = {"error_code": group_code_of(error), "topics": []}
        return write_response(ApiKey.OFFSET_DELETE, request.version, values)
