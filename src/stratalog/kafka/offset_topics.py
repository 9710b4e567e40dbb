"""The topics of OffsetCommit and OffsetFetch, which name them, and since version 10 by id."""

from collections.abc import Mapping, Sequence
from typing import Any

from stratalog.control.model import Topic
from stratalog.control.plane import UnknownTopicError
from stratalog.errors import StratalogError
from stratalog.ids import TopicId
from stratalog.kafka.errors import UnknownTopicIdError
from stratalog.kafka.schema_writer import Values
from stratalog.topic.catalog import TopicCatalog

FIRST_VERSION_WITH_TOPIC_IDS = 10


class AskedTopics:
    """The topics that a request is about, as far as they exist."""

    def __init__(self, known: dict[Any, Topic], *, version: int) -> None:
        self._known = known
        self._version = version

    @classmethod
    async def find(
        cls,
        catalog: TopicCatalog,
        version: int,
        partitions: Mapping[Any, Sequence[int]],
        *,
        believes_cache: bool,
    ) -> "AskedTopics":
        """`partitions` are those asked for, by what the request calls the topic.

        The cache may take a name for a topic that was deleted and made anew through another
        broker. A commit is told so by the control plane; whoever reads would find nothing.
        """
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            ids = [TopicId(key) for key in partitions if key is not None]
            return cls(dict(await catalog.with_ids(ids)), version=version)
        if not believes_cache:
            return cls(await catalog.refreshed(list(partitions)), version=version)
        known = await catalog.named(list(partitions))
        # What the catalogue knows may be too few: somebody may have added partitions.
        grown = [
            name
            for name, topic in known.items()
            if max(partitions[name], default=-1) >= topic.partition_count
        ]
        if grown:
            known |= await catalog.refreshed(grown)
        return cls(dict(known), version=version)

    def topic(self, key: Any, partition: int) -> Topic:
        found = self._known.get(key)
        if found is None:
            raise unknown_topic(self._version, key, partition)
        if not 0 <= partition < found.partition_count:
            raise UnknownTopicError(f"there is no partition {partition} of topic {key!r}")
        return found


def unknown_topic(version: int, key: Any, partition: int) -> StratalogError:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return UnknownTopicIdError(f"no topic has the id {key}")
    return UnknownTopicError(f"there is no partition {partition} of topic {key!r}")


def topic_key(version: int, asked: Any) -> Any:
    """What a request calls a topic."""
    return asked.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else asked.name


def topic_values(version: int, key: Any) -> Values:
    """What the response calls it."""
    return {"topic_id": key} if version >= FIRST_VERSION_WITH_TOPIC_IDS else {"name": key}
