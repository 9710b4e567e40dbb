"""CreatePartitions: topics only grow."""

from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.control.plane import PartitionCountError, UnknownTopicError
from stratalog.errors import StratalogError
from stratalog.kafka.api import ApiKey
from stratalog.kafka.components import Components
from stratalog.kafka.error_codes import code_of, message_of
from stratalog.kafka.errors import DuplicateEntryError, PartitionAssignmentError
from stratalog.kafka.handler import Body
from stratalog.kafka.request import Request
from stratalog.kafka.schema_writer import Values, write_response
from stratalog.kafka.topic_creation import check_partition_count


class CreatePartitionsHandler:
    def __init__(self, components: Components) -> None:
        self._catalog = components.catalog

    async def handle(self, request: Request, body: Any) -> Body:
        times = Counter(asked.name for asked in body.topics)
        results = [
            await self._result(asked, times[asked.name], validate_only=body.validate_only)
            for asked in {asked.name: asked for asked in body.topics}.values()
        ]
        return write_response(ApiKey.CREATE_PARTITIONS, request.version, {"results": results})

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:
        results = [_values(asked.name, error) for asked in body.topics]
        return write_response(ApiKey.CREATE_PARTITIONS, request.version, {"results": results})

    async def _result(self, asked: Any, times: int, *, validate_only: bool) -> Values:
        try:
            if times > 1:
                raise DuplicateEntryError(f"the request names topic {asked.name!r} {times} times")
            await self._grow(asked, validate_only=validate_only)
        except StratalogError as error:
            return _values(asked.name, error)
        return _values(asked.name, None)

    async def _grow(self, asked: Any, *, validate_only: bool) -> None:
        if asked.assignments is not None:
            raise PartitionAssignmentError("replicas cannot be assigned, brokers keep no data")
        check_partition_count(asked.count)
        found = await self._catalog.refreshed([asked.name])
        if asked.name not in found:
            raise UnknownTopicError(f"there is no topic {asked.name!r}")
        topic = found[asked.name]
        if asked.count <= topic.partition_count:
            raise PartitionCountError(
                f"topic {topic.name!r} has {topic.partition_count} partitions: "
                f"it cannot be given {asked.count}"
            )
        if not validate_only:
            await self._catalog.add_partitions(topic, partition_count=asked.count)


def _values(name: str, error: Exception | None) -> Values:
    return {
        "name": name,
        "error_code": ErrorCode.none if error is None else code_of(error),
        "error_message": None if error is None else message_of(error),
    }
