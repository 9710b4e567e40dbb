"""DeleteRecords: raises the start of partitions. Every partition succeeds or fails by itself."""

from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.control.model import Topic
from stratalog.control.plane import UnknownTopicError
from stratalog.errors import StratalogError
from stratalog.ids import NO_OFFSET, Offset, PartitionIndex, TopicPartition
from stratalog.kafka.api import ApiKey
from stratalog.kafka.components import Components
from stratalog.kafka.error_codes import code_of
from stratalog.kafka.handler import Body
from stratalog.kafka.request import Request
from stratalog.kafka.schema_writer import Values, write_response


class DeleteRecordsHandler:
    def __init__(self, components: Components) -> None:
        self._catalog = components.catalog
        self._control = components.control

    async def handle(self, request: Request, body: Any) -> Body:
        topics = await self._catalog.named([asked.name for asked in body.topics])
        results = [
            {
                "name": asked.name,
                "partitions": [await self._result(topics, asked, one) for one in asked.partitions],
            }
            for asked in body.topics
        ]
        return write_response(ApiKey.DELETE_RECORDS, request.version, {"topics": results})

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:
        results = [
            {
                "name": asked.name,
                "partitions": [_failed(one.partition_index, error) for one in asked.partitions],
            }
            for asked in body.topics
        ]
        return write_response(ApiKey.DELETE_RECORDS, request.version, {"topics": results})

    async def _result(self, topics: Mapping[str, Topic], asked: Any, one: Any) -> Values:
        index = one.partition_index
        try:
            if asked.name not in topics:
                raise UnknownTopicError(f"there is no topic {asked.name!r}")
            key = TopicPartition(topics[asked.name].id, PartitionIndex(index))
            (deleted,) = await self._control.delete_records({key: Offset(one.offset)})
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
