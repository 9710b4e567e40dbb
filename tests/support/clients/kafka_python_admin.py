"""kafka-python's administration."""

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.clients.admin import RefusedError

with warnings.catch_warnings():
    # It reads its schemas by a function that Python 3.11 and 3.12 call deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import TopicPartition
    from kafka.admin import (
        ConfigResource,
        ConfigResourceType,
        KafkaAdminClient,
        NewPartitions,
        NewTopic,
    )


class KafkaPythonAdmin:
    name = "kafka-python"

    def create(
        self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str]
    ) -> None:
        asked = NewTopic(
            name=topic, num_partitions=partitions, replication_factor=1, topic_configs=dict(configs)
        )
        self._run(bootstrap, lambda admin: admin.create_topics([asked]))

    def delete(self, bootstrap: str, topic: str) -> None:
        self._run(bootstrap, lambda admin: admin.delete_topics([topic]))

    def grow(self, bootstrap: str, topic: str, partitions: int) -> None:
        asked = {topic: NewPartitions(partitions)}
        self._run(bootstrap, lambda admin: admin.create_partitions(asked))

    def partitions(self, bootstrap: str) -> dict[str, int]:
        described = self._run(bootstrap, lambda admin: admin.describe_topics())
        return {topic["name"]: len(topic["partitions"]) for topic in described}

    def configs(self, bootstrap: str, topic: str) -> dict[str, str]:
        return self._described(bootstrap, ConfigResource(ConfigResourceType.TOPIC, topic))

    def broker_configs(self, bootstrap: str, broker_id: int) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.BROKER, str(broker_id))
        return self._described(bootstrap, resource)

    def alter(self, bootstrap: str, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(configs))
        answer = self._run(
            bootstrap, lambda admin: admin.alter_configs([resource], raise_on_unknown=False)
        )
        (result,) = next(iter(answer.values())).values()
        if result != "OK":
            raise RefusedError(int(re.findall(r"\d+", result)[0]))  # "[Error 40] …"

    def delete_records(self, bootstrap: str, topic: str, before: int) -> int:
        place = TopicPartition(topic, 0)
        deleted = self._run(bootstrap, lambda admin: admin.delete_records({place: before}))
        return int(deleted[place]["low_watermark"])

    def _described(self, bootstrap: str, resource: Any) -> dict[str, str]:
        answer = self._run(
            bootstrap, lambda admin: admin.describe_configs([resource], config_filter="all")
        )
        (found,) = next(iter(answer.values())).values()
        return {name: entry["value"] for name, entry in found.items()}

    def _run(self, bootstrap: str, work: Callable[[Any], Any]) -> Any:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
        try:
            return work(admin)
        except Exception as error:
            raise RefusedError(getattr(error, "errno", -1)) from error
        finally:
            admin.close()
