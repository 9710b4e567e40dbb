"""The names of topics after a recovery: each name once. Pure.

If a topic is deleted and another one gets its name, the store has objects of both. The topic with
the newest objects keeps the name, because the other must have been deleted before. That one is
recovered, too, under a name with its id: it may be all that is left of records that are wanted.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from stratalog.ids import TopicId, kafka_base64

_MOST_NAME = 249 - 1 - 22
"""So that a point and an id can follow."""


class NamedTopic(NamedTuple):
    topic_id: TopicId
    name: str
    is_deleted: bool
    """True if a note in the store says so."""
    newest_ms: int
    """The time of its newest object. 0 if the store has none that the control plane did not
    know."""


def distinct_names(topics: Iterable[NamedTopic]) -> dict[TopicId, str]:
    by_name: dict[str, list[NamedTopic]] = defaultdict(list)
    for topic in topics:
        by_name[topic.name].append(topic)
    names: dict[TopicId, str] = {}
    for name, same in by_name.items():
        keeps = max(same, key=lambda each: (not each.is_deleted, each.newest_ms, each.topic_id))
        for topic in same:
            other = f"{name[:_MOST_NAME]}.{kafka_base64(topic.topic_id)}"
            names[topic.topic_id] = name if topic is keeps else other
    return names
