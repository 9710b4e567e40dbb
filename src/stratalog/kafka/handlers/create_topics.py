"""CreateTopics. The object store replicates, so any replication factor is taken, and 1 reported."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from stratalog.admin.config_description import describe_topic
from stratalog.admin.errors import (
    DuplicateEntryError,
    PartitionAssignmentError,
    ReplicationFactorError,
)
from stratalog.admin.rights import Operation, Resource, Right
from stratalog.control.topics.model import Topic
from stratalog.errors import StratalogError
from stratalog.kafka.handlers.shared.config_values import config_values
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import code_of, message_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.schema_writer import Values, write_response
from stratalog.topic_configs import check_configs

_ANY_FACTOR = -1


class CreatableReplicaAssignment(NamedTuple):
    """Assignments are refused, whatever they say."""


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
    rights = (Right(Operation.CREATE, Resource.CLUSTER), Right(Operation.CREATE, Resource.TOPIC))
    body = CreateTopicsBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._creation = components.creation
        self._defaults = components.settings.topic

    async def handle(self, request: Request, body: CreateTopicsBody) -> Body:
        times = Counter(asked.name for asked in body.topics)
        results = [
            await self._result(asked, times=times[asked.name], validate_only=body.validate_only)
            for asked in {asked.name: asked for asked in body.topics}.values()
        ]
        return write_response(ApiKey.CREATE_TOPICS, request.version, {"topics": results})

    async def _result(self, asked: CreatableTopic, *, times: int, validate_only: bool) -> Values:
        try:
            if times > 1:
                raise DuplicateEntryError(f"the request names topic {asked.name!r} {times} times")
            _check_replicas(asked)
            configs = {config.name: config.value for config in asked.configs}
            count = asked.num_partitions
            if validate_only:
                count = await self._creation.check(
                    asked.name, partition_count=count, configs=configs
                )
                return self._succeeded(asked.name, None, count, check_configs(configs))
            topic = await self._creation.create(asked.name, partition_count=count, configs=configs)
        except StratalogError as error:
            return _failed(asked.name, error)
        return self._succeeded(topic.name, topic, topic.partition_count, topic.configs)

    def _succeeded(
        self, name: str, topic: Topic | None, partition_count: int, configs: Mapping[str, str]
    ) -> Values:
        described = describe_topic(self._defaults, configs)
        return {
            "name": name,
            "topic_id": topic.id if topic else None,
            "error_code": ErrorCode.none,
            "error_message": None,
            "num_partitions": partition_count,
            "replication_factor": 1,
            "configs": [
                config_values(config, synonyms=False, documentation=False) for config in described
            ],
        }


def _check_replicas(asked: CreatableTopic) -> None:
    if asked.assignments:
        raise PartitionAssignmentError(
            f"topic {asked.name!r}: replicas cannot be assigned, brokers keep no data"
        )
    if asked.replication_factor < 1 and asked.replication_factor != _ANY_FACTOR:
        raise ReplicationFactorError(
            f"topic {asked.name!r}: replication factor {asked.replication_factor} is not positive"
        )


def _failed(name: str, error: Exception) -> Values:
    return {
        "name": name,
        "topic_id": None,
        "error_code": code_of(error),
        "error_message": message_of(error),
        "configs": [],
    }
