"""DeleteRecords: raises the start of partitions. Every partition succeeds or fails by itself."""

from collections.abc import Sequence
from typing import NamedTuple

from stratalog.admin.entries import PartitionName
from stratalog.admin.records import RecordDeletion
from stratalog.admin.rights import DELETE_TOPIC
from stratalog.errors import StratalogError
from stratalog.ids import NO_OFFSET, Offset
from stratalog.kafka.handlers.shared.outcomes import outcome_code
from stratalog.kafka.server.components import Components
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
    rights = (DELETE_TOPIC,)
    body = DeleteRecordsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._records = components.admin.records

    def is_heavy(self, body: DeleteRecordsBody) -> bool:  # noqa: ARG002
        return True

    async def handle(self, request: Request, body: DeleteRecordsBody) -> Body:
        deletions = [
            RecordDeletion(
                partition=PartitionName(asked.name, one.partition_index), before=Offset(one.offset)
            )
            for asked in body.topics
            for one in asked.partitions
        ]
        outcomes = iter(await self._records.delete(request.principal, deletions))
        results = [
            {
                "name": asked.name,
                "partitions": [
                    _values(one.partition_index, next(outcomes)) for one in asked.partitions
                ],
            }
            for asked in body.topics
        ]
        return write_response(ApiKey.DELETE_RECORDS, request.version, {"topics": results})


def _values(index: int, outcome: Offset | StratalogError) -> Values:
    return {
        "partition_index": index,
        "low_watermark": NO_OFFSET if isinstance(outcome, StratalogError) else outcome,
        "error_code": outcome_code(outcome),
    }
