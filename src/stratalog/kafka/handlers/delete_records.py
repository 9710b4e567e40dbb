"""DeleteRecords: raises the start of partitions. Every partition succeeds or fails by itself."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.rights import Operation, Resource, Right
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.errors import StratalogError
from stratalog.ids import NO_OFFSET, Offset, PartitionIndex, TopicPartition
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import code_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response


class DeleteRecordsPartition(NamedTuple):
    partition_index: int
    offset: int


class DeleteRecordsTopic(NamedTuple):
    name: str
    partitions: Sequence[DeleteRecordsPartition]


class DeleteRecordsBody(NamedTuple):
    topics: Sequence[DeleteRecordsTopic]


class DeleteRecordsHandler(Handler[DeleteRecordsBody]):
    key = ApiKey.DELETE_RECORDS
    versions = Versions(0, 2, 2)
    rights = (Right(Operation.DELETE, Resource.TOPIC),)
    body = DeleteRecordsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._catalog = components.catalog
        self._control = components.control

    async def handle(self, request: Request, body: DeleteRecordsBody) -> Body:
        topics = await self._catalog.named([asked.name for asked in body.topics])
        results = [
            {
                "name": asked.name,
                "partitions": [await self._result(topics, asked, one) for one in asked.partitions],
            }
            for asked in body.topics
        ]
        return write_response(ApiKey.DELETE_RECORDS, request.version, {"topics": results})

    async def _result(
        self, topics: Mapping[str, Topic], asked: DeleteRecordsTopic, one: DeleteRecordsPartition
    ) -> Values:
        index = one.partition_index
        try:
            if asked.name not in topics:
                raise UnknownTopicError(f"there is no topic {asked.name!r}")
            key = TopicPartition(topics[asked.name].id, PartitionIndex(index))
            (deleted,) = await self._control.log.delete_records({key: Offset(one.offset)})
        except StratalogError as error:
            if isinstance(error, UnknownTopicError) and asked.name in topics:
                self._catalog.forget(topics[asked.name].id)
            return _failed(index, error)
        return {
            "partition_index": index,
            "low_watermark": deleted.log_start,
            "error_code": ErrorCode.none,
        }


def _failed(index: int, error: Exception) -> Values:
    return {"partition_index": index, "low_watermark": NO_OFFSET, "error_code": code_of(error)}
