"""Partitions in the order of most messages: topic by topic."""

from collections.abc import Iterable

from stratalog.ids import TopicId, TopicPartition


def by_topic(partitions: Iterable[TopicPartition]) -> dict[TopicId, list[int]]:
    topics: dict[TopicId, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        topics.setdefault(topic_id, []).append(partition)
    return topics
