"""aiokafka's administration. Some of its calls return error codes, others raise them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError
from tests.support.clients.admin import RefusedError


class AiokafkaAdmin:
    name = "aiokafka"

    def create(
        self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str]
    ) -> None:
        asked = NewTopic(topic, partitions, 1, topic_configs=dict(configs))
        answer = self._run(bootstrap, lambda admin: admin.create_topics([asked]))
        _check(answer.topic_errors[0][1])

    def delete(self, bootstrap: str, topic: str) -> None:
        answer = self._run(bootstrap, lambda admin: admin.delete_topics([topic]))
        _check(answer.topic_error_codes[0][1])

    def grow(self, bootstrap: str, topic: str, partitions: int) -> None:
        asked = {topic: NewPartitions(partitions)}
        answer = self._run(bootstrap, lambda admin: admin.create_partitions(asked))
        _check(answer.topic_errors[0][1])

    def partitions(self, bootstrap: str) -> dict[str, int]:
        described = self._run(bootstrap, lambda admin: admin.describe_topics())
        return {topic["topic"]: len(topic["partitions"]) for topic in described}

    def configs(self, bootstrap: str, topic: str) -> dict[str, str]:
        return self._described(bootstrap, ConfigResource(ConfigResourceType.TOPIC, topic))

    def broker_configs(self, bootstrap: str, broker_id: int) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.BROKER, str(broker_id))
        return self._described(bootstrap, resource)

    def alter(self, bootstrap: str, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(configs))
        answers = self._run(bootstrap, lambda admin: admin.alter_configs([resource]))
        _check(answers[0].resources[0][0])

    def delete_records(self, bootstrap: str, topic: str, before: int) -> int:
        place = TopicPartition(topic, 0)
        wanted = {place: RecordsToDelete(before)}
        deleted = self._run(bootstrap, lambda admin: admin.delete_records(wanted))
        return int(deleted[place])

    def _described(self, bootstrap: str, resource: ConfigResource) -> dict[str, str]:
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
        raise RefusedError(code)
