"""The facts about topics that decide how they are converted."""

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from stratalog.control.pipeline.model import AgedPartition
from stratalog.control.topics.model import Topic
from stratalog.errors import TopicConfigError
from stratalog.ids import TopicId
from stratalog.settings import Settings
from stratalog.topic.configs import effective

log = logging.getLogger(__name__)


class TopicFacts(NamedTuple):
    name: str
    segment_bytes: int
    segment_ms: int
    index_interval_bytes: int
    age_ms: int
    """How long ago records must have been committed before they are converted."""
    triggered_ms: int | None = None
    """Records that were committed up to this time do not wait for more."""


def facts_of(topics: Iterable[Topic], settings: Settings) -> dict[TopicId, TopicFacts]:
    """Return the facts of all topics whose configs are valid; log the others and leave them out.

    A topic with a bad config must not hold up the rest.
    """
    found = {}
    for topic in topics:
        try:
            found[topic.id] = topic_facts(topic, settings)
        except TopicConfigError as error:
            log.warning("Topic %s is not converted until it is fixed: %s", topic.name, error)
    return found


def topic_facts(topic: Topic, settings: Settings) -> TopicFacts:
    config = effective(settings.topic, topic.configs)
    age_ms = config.local_retention_ms
    return TopicFacts(
        name=topic.name,
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        index_interval_bytes=config.index_interval_bytes,
        age_ms=settings.tiering.age_ms if age_ms is None else age_ms,
    )


def with_triggers(
    topics: Mapping[TopicId, TopicFacts], aged: Iterable[AgedPartition]
) -> Mapping[TopicId, TopicFacts]:
    """Add the triggers, which are read along with the aged partitions."""
    triggers = {each.topic_id: each.triggered_ms for each in aged}
    return {
        topic_id: facts._replace(triggered_ms=triggers.get(topic_id))
        for topic_id, facts in topics.items()
    }
