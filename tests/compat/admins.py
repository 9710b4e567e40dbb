"""The administration of three clients behind one face. kcat can only list."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AiokafkaPartitions
from aiokafka.admin import NewTopic as AiokafkaTopic
from aiokafka.admin.config_resource import ConfigResource as AiokafkaResource
from aiokafka.admin.config_resource import ConfigResourceType as AiokafkaResourceType
from aiokafka.errors import KafkaError, for_code
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka.admin import ConfigResource as KafkaPythonResource
from kafka.admin import ConfigResourceType as KafkaPythonResourceType
from kafka.admin import KafkaAdminClient
from kafka.admin import NewPartitions as KafkaPythonPartitions
from kafka.admin import NewTopic as KafkaPythonTopic

_ANSWER_SECONDS = 30


class RefusedError(Exception):
    """The broker's error, by Kafka's number."""

    def __init__(self, code: int) -> None:
        super().__init__(f"Kafka error {code}")
        self.code = code


class Admin(Protocol):
    @property
    def name(self) -> str: ...

    def create(
        self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str]
    ) -> None: ...

    def delete(self, bootstrap: str, topic: str) -> None: ...

    def grow(self, bootstrap: str, topic: str, partitions: int) -> None: ...

    def partitions(self, bootstrap: str) -> dict[str, int]:
        """How many partitions each topic has."""

    def configs(self, bootstrap: str, topic: str) -> dict[str, str]: ...


class ConfluentAdmin:
    name = "confluent"

    def create(
        self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str]
    ) -> None:
        asked = NewTopic(topic, partitions, config=dict(configs))
        self._run(bootstrap, lambda admin: admin.create_topics([asked]))

    def delete(self, bootstrap: str, topic: str) -> None:
        self._run(bootstrap, lambda admin: admin.delete_topics([topic]))

    def grow(self, bootstrap: str, topic: str, partitions: int) -> None:
        asked = NewPartitions(topic, partitions)
        self._run(bootstrap, lambda admin: admin.create_partitions([asked]))

    def partitions(self, bootstrap: str) -> dict[str, int]:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        listed = admin.list_topics(timeout=_ANSWER_SECONDS)
        return {name: len(topic.partitions) for name, topic in listed.topics.items()}

    def configs(self, bootstrap: str, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = self._run(bootstrap, lambda admin: admin.describe_configs([resource]))
        return {name: entry.value for name, entry in found.items()}

    def _run(self, bootstrap: str, work: Callable[[AdminClient], Mapping[Any, Any]]) -> Any:
        """The client must outlive its futures."""
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        (future,) = work(admin).values()
        try:
            return future.result(_ANSWER_SECONDS)
        except KafkaException as error:
            raise RefusedError(error.args[0].code()) from error


class KafkaPythonAdmin:
    name = "kafka-python"

    def create(
        self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str]
    ) -> None:
        asked = KafkaPythonTopic(
            name=topic, num_partitions=partitions, replication_factor=1, topic_configs=dict(configs)
        )
        self._run(bootstrap, lambda admin: admin.create_topics([asked]))

    def delete(self, bootstrap: str, topic: str) -> None:
        self._run(bootstrap, lambda admin: admin.delete_topics([topic]))

    def grow(self, bootstrap: str, topic: str, partitions: int) -> None:
        asked = {topic: KafkaPythonPartitions(partitions)}
        self._run(bootstrap, lambda admin: admin.create_partitions(asked))

    def partitions(self, bootstrap: str) -> dict[str, int]:
        described = self._run(bootstrap, lambda admin: admin.describe_topics())
        return {topic["name"]: len(topic["partitions"]) for topic in described}

    def configs(self, bootstrap: str, topic: str) -> dict[str, str]:
        resource = KafkaPythonResource(KafkaPythonResourceType.TOPIC, topic)
        answer = self._run(
            bootstrap, lambda admin: admin.describe_configs([resource], config_filter="all")
        )
        found = next(iter(answer.values()))[topic]
        return {name: entry["value"] for name, entry in found.items()}

    def _run(self, bootstrap: str, work: Callable[[Any], Any]) -> Any:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
        try:
            return work(admin)
        except Exception as error:
            raise RefusedError(getattr(error, "errno", -1)) from error
        finally:
            admin.close()


class AiokafkaAdmin:
    name = "aiokafka"

    def create(
        self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str]
    ) -> None:
        asked = AiokafkaTopic(topic, partitions, 1, topic_configs=dict(configs))
        answer = self._run(bootstrap, lambda admin: admin.create_topics([asked]))
        _check(answer.topic_errors[0][1])

    def delete(self, bootstrap: str, topic: str) -> None:
        answer = self._run(bootstrap, lambda admin: admin.delete_topics([topic]))
        _check(answer.topic_error_codes[0][1])

    def grow(self, bootstrap: str, topic: str, partitions: int) -> None:
        asked = {topic: AiokafkaPartitions(partitions)}
        answer = self._run(bootstrap, lambda admin: admin.create_partitions(asked))
        _check(answer.topic_errors[0][1])

    def partitions(self, bootstrap: str) -> dict[str, int]:
        described = self._run(bootstrap, lambda admin: admin.describe_topics())
        return {topic["topic"]: len(topic["partitions"]) for topic in described}

    def configs(self, bootstrap: str, topic: str) -> dict[str, str]:
        resource = AiokafkaResource(AiokafkaResourceType.TOPIC, topic)
        answers = self._run(bootstrap, lambda admin: admin.describe_configs([resource]))
        code, _, _, _, entries = answers[0].resources[0]
        _check(code)
        return {entry[0]: entry[1] for entry in entries}

    def _run(self, bootstrap: str, work: Callable[[Any], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap.split(","))
            await admin.start()
            try:
                return await work(admin)
            finally:
                await admin.close()

        try:
            return asyncio.run(run())
        except KafkaError as error:
            raise RefusedError(error.errno) from error


def _check(code: int) -> None:
    if code != 0:
        raise RefusedError(code) from for_code(code)()
