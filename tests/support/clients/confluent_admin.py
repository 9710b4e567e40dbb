"""confluent-kafka's administration."""

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # Public, but not marked so.
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from tests.support.clients.admin import ANSWER_SECONDS, RefusedError


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
        listed = admin.list_topics(timeout=ANSWER_SECONDS)
        return {name: len(topic.partitions) for name, topic in listed.topics.items()}

    def configs(self, bootstrap: str, topic: str) -> dict[str, str]:
        return self._described(bootstrap, ConfigResource(ResourceType.TOPIC, topic))

    def broker_configs(self, bootstrap: str, broker_id: int) -> dict[str, str]:
        return self._described(bootstrap, ConfigResource(ResourceType.BROKER, str(broker_id)))

    def alter(self, bootstrap: str, topic: str, configs: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._run(bootstrap, lambda admin: admin.incremental_alter_configs([resource]))

    def delete_records(self, bootstrap: str, topic: str, before: int) -> int:
        place = TopicPartition(topic, 0, before)
        deleted = self._run(bootstrap, lambda admin: admin.delete_records([place]))
        return int(deleted.low_watermark)

    def _described(self, bootstrap: str, resource: ConfigResource) -> dict[str, str]:
        found = self._run(bootstrap, lambda admin: admin.describe_configs([resource]))
        return {name: entry.value for name, entry in found.items()}

    def _run(self, bootstrap: str, work: Callable[[AdminClient], Mapping[Any, Any]]) -> Any:
        """The client must outlive its futures."""
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        (future,) = work(admin).values()
        try:
            return future.result(ANSWER_SECONDS)
        except KafkaException as error:
            raise RefusedError(error.args[0].code()) from error
