"""The retention of topics, by their configs and the cluster's defaults."""

from collections.abc import Mapping

from stratalog.control.topics.model import Topic
from stratalog.janitor.retention import Retention, RetentionOf
from stratalog.topic.configs import effective


def retention_by(topic_defaults: Mapping[str, str]) -> RetentionOf:
    def retention_of(topic: Topic) -> Retention:
        config = effective(topic_defaults, topic.configs)
        return Retention(ms=config.retention_ms, bytes=config.retention_bytes)

    return retention_of
