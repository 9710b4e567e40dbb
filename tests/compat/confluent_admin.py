"""confluent-kafka's administration."""

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from tests.compat.admin import ANSWER_SECONDS, RefusedError


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
        resource = ConfigResource(ResourceType.TOPIC, topic)
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
