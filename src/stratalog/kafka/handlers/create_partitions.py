"""CreatePartitions: topics only grow."""

from collections.abc import Sequence
from typing import NamedTuple

from stratalog.admin.rights import ALTER_TOPIC
from stratalog.admin.topics import PartitionGrowth
from stratalog.kafka.handlers.shared.outcomes import outcome_values
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import write_response


class CreatePartitionsAssignment(NamedTuple):
    broker_ids: Sequence[int]


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
    rights = (ALTER_TOPIC,)
    body = CreatePartitionsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._topics = components.admin.topics

    def is_heavy(self, body: CreatePartitionsBody) -> bool:  # noqa: ARG002
        return True

    async def handle(self, request: Request, body: CreatePartitionsBody) -> Body:
        outcomes = await self._topics.add_partitions(
            request.principal,
            [
                PartitionGrowth(
                    topic=asked.name,
                    partition_count=asked.count_,
                    assigned=_assigned(asked),
                )
                for asked in body.topics
            ],
            validate_only=body.validate_only,
        )
        results = [{"name": name, **outcome_values(outcome)} for name, outcome in outcomes.items()]
        return write_response(ApiKey.CREATE_PARTITIONS, request.version, {"results": results})


def _assigned(asked: CreatePartitionsTopic) -> Sequence[Sequence[int]] | None:
    if asked.assignments is None:
        return None
    return [one.broker_ids for one in asked.assignments]
