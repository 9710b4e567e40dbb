"""CreateTopics. The object store replicates, so every replication factor becomes 1."""

from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.replica_assignments import AssignedPartition
from stratalog.admin.rights import CREATE_ON_CLUSTER, CREATE_TOPIC
from stratalog.admin.topics import REPLICATION_FACTOR, CreatedTopic, NewTopic
from stratalog.errors import StratalogError
from stratalog.kafka.handlers.shared.config_values import config_values
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import code_of, message_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response


class CreatableReplicaAssignment(NamedTuple):
    partition_index: int
    broker_ids: Sequence[int]


class CreatableTopicConfig(NamedTuple):
    name: str
    value: str | None


class CreatableTopic(NamedTuple):
    name: str
    num_partitions: int
    replication_factor: int
    assignments: Sequence[CreatableReplicaAssignment]
    configs: Sequence[CreatableTopicConfig]


class CreateTopicsBody(NamedTuple):
    topics: Sequence[CreatableTopic]
    validate_only: bool


class CreateTopicsHandler(Handler[CreateTopicsBody]):
    key = ApiKey.CREATE_TOPICS
    versions = Versions(2, 7, 5)
    rights = (CREATE_ON_CLUSTER, CREATE_TOPIC)
    body = CreateTopicsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._topics = components.admin.topics

    def is_heavy(self, body: CreateTopicsBody) -> bool:  # noqa: ARG002
        return True

    async def handle(self, request: Request, body: CreateTopicsBody) -> Body:
        outcomes = await self._topics.create(
            request.principal,
            [_new_topic(asked) for asked in body.topics],
            validate_only=body.validate_only,
        )
        results = [
            _failed(name, outcome) if isinstance(outcome, StratalogError) else _created(outcome)
            for name, outcome in outcomes.items()
        ]
        return write_response(ApiKey.CREATE_TOPICS, request.version, {"topics": results})


def _new_topic(asked: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=asked.name,
        partition_count=asked.num_partitions,
        replication_factor=asked.replication_factor,
        assigned=[AssignedPartition(*one) for one in asked.assignments],
        configs={config.name: config.value for config in asked.configs},
    )


def _created(topic: CreatedTopic) -> Values:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "error_code": ErrorCode.none,
        "error_message": None,
        "num_partitions": topic.partition_count,
        "replication_factor": REPLICATION_FACTOR,
        "configs": [
            config_values(config, synonyms=False, documentation=False) for config in topic.configs
        ],
    }


def _failed(name: str, error: StratalogError) -> Values:
    return {
        "name": name,
        "topic_id": None,
        "error_code": code_of(error),
        "error_message": message_of(error),
        "configs": [],
    }
