"""The topics of OffsetCommit and OffsetFetch, which name them, and since version 10 by id."""

from collections.abc import Mapping, Sequence
from typing import Any

from stratalog.control.model import Topic
from stratalog.control.plane import UnknownTopicError
from stratalog.ids import TopicId
from stratalog.kafka.errors import UnknownTopicIdError
from stratalog.kafka.schema_writer import Values
from stratalog.topic.catalog import TopicCatalog

FIRST_VERSION_WITH_TOPIC_IDS = 10


class AskedTopics:
    """The topics that a request is about, as far as they exist."""

    def __init__(self, known: dict[Any, Topic], *, by_id: bool) -> None:
        self._known = known
        self._by_id = by_id

    @classmethod
    async def find(
        cls, catalog: TopicCatalog, version: int, partitions: Mapping[Any, Sequence[int]]
    ) -> "AskedTopics":
        """`partitions` are those asked for, by what the request calls the topic."""
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            ids = [TopicId(key) for key in partitions if key is not None]
            return cls(dict(await catalog.with_ids(ids)), by_id=True)
        known = await catalog.named(list(partitions))
        # What the catalogue knows may be too few: somebody may have added partitions.
        grown = [
            name
            for name, topic in known.items()
            if max(partitions[name], default=-1) >= topic.partition_count
        ]
        if grown:
            known |= await catalog.refreshed(grown)
        return cls(dict(known), by_id=False)

    def topic(self, key: Any, partition: int) -> Topic:
        found = self._known.get(key)
        if found is None and self._by_id:
            raise UnknownTopicIdError(f"no topic has the id {key}")
        if found is None or not 0 <= partition < found.partition_count:
            raise UnknownTopicError(f"there is no partition {partition} of topic {key!r}")
        return found


def topic_key(version: int, asked: Any) -> Any:
    """What a request calls a topic."""
    return asked.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else asked.name


def topic_values(version: int, key: Any) -> Values:
    """What the response calls it."""
    return {"topic_id": key} if version >= FIRST_VERSION_WITH_TOPIC_IDS else {"name": key}
