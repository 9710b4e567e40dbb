"""CreatePartitions: topics only grow."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.errors import DuplicateEntryError, PartitionAssignmentError
from stratalog.admin.rights import Operation, Resource, Right
from stratalog.admin.topic_creation import check_partition_count
from stratalog.control.topics.errors import PartitionCountError, UnknownTopicError
from stratalog.errors import StratalogError
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import code_of, message_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response


class CreatePartitionsAssignment(NamedTuple):
    """Assignments are refused, whatever they say."""


class CreatePartitionsTopic(NamedTuple):
    name: str
    count_: int
    assignments: Sequence[CreatePartitionsAssignment] | None


class CreatePartitionsBody(NamedTuple):
    topics: Sequence[CreatePartitionsTopic]
    validate_only: bool


class CreatePartitionsHandler(Handler[CreatePartitionsBody]):
    key = ApiKey.CREATE_PARTITIONS
    versions = Versions(0, 3, 2)
    rights = (Right(Operation.ALTER, Resource.TOPIC),)
    body = CreatePartitionsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._catalog = components.catalog

    async def handle(self, request: Request, body: CreatePartitionsBody) -> Body:
        times = Counter(asked.name for asked in body.topics)
        results = [
            await self._result(asked, times[asked.name], validate_only=body.validate_only)
            for asked in {asked.name: asked for asked in body.topics}.values()
        ]
        return write_response(ApiKey.CREATE_PARTITIONS, request.version, {"results": results})

    async def _result(
        self, asked: CreatePartitionsTopic, times: int, *, validate_only: bool
    ) -> Values:
        try:
            if times > 1:
                raise DuplicateEntryError(f"the request names topic {asked.name!r} {times} times")
            await self._grow(asked, validate_only=validate_only)
        except StratalogError as error:
            return _values(asked.name, error)
        return _values(asked.name, None)

    async def _grow(self, asked: CreatePartitionsTopic, *, validate_only: bool) -> None:
        if asked.assignments is not None:
            raise PartitionAssignmentError("replicas cannot be assigned, brokers keep no data")
        check_partition_count(asked.count_)
        found = await self._catalog.refreshed([asked.name])
        if asked.name not in found:
            raise UnknownTopicError(f"there is no topic {asked.name!r}")
        topic = found[asked.name]
        if asked.count_ <= topic.partition_count:
            raise PartitionCountError(
                f"topic {topic.name!r} has {topic.partition_count} partitions: "
                f"it cannot be given {asked.count_}"
            )
        if not validate_only:
            await self._catalog.add_partitions(topic, partition_count=asked.count_)


def _values(name: str, error: Exception | None) -> Values:
    return {
        "name": name,
        "error_code": ErrorCode.none if error is None else code_of(error),
        "error_message": None if error is None else message_of(error),
    }
