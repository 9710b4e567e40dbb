"""The topics of OffsetCommit and OffsetFetch: by name, and since version 10 by id."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias
from uuid import UUID

from stratalog.admin.errors import UnknownTopicIdError
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.errors import StratalogError
from stratalog.ids import TopicId
from stratalog.kafka.wire.schema_writer import Values
from stratalog.topic.catalog import TopicCatalog

FIRST_VERSION_WITH_TOPIC_IDS = 10


TopicKey: TypeAlias = str | UUID | None
"""A topic as a request names it: by name or, in later versions, by id. None is an id of zeros."""


class NamedTopic(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> UUID | None: ...


class AskedTopics:
    """The existing topics of a request."""

    def __init__(self, known: Iterable[tuple[TopicKey, Topic]], *, version: int) -> None:
        self._known = dict(known)
        self._version = version

    @classmethod
    async def find(
        cls,
        catalog: TopicCatalog,
        version: int,
        partitions: Mapping[TopicKey, Sequence[int]],
        *,
        believes_cache: bool,
    ) -> "AskedTopics":
        """Find the topics. `partitions` are the requested ones, by the name or id of their topic.

        The cache may know a topic that was deleted and created again through another broker. The
        control plane refuses a commit to the old one, but a read of its offsets would find
        nothing: so reads do not believe the cache.
        """
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            ids = [TopicId(key) for key in partitions if isinstance(key, UUID)]
            return cls((await catalog.with_ids(ids)).items(), version=version)
        names = [key for key in partitions if isinstance(key, str)]
        if not believes_cache:
            return cls((await catalog.refreshed(names)).items(), version=version)
        known = await catalog.named(names)
        # The catalog may know too few partitions, if some were added through another broker.
        grown = [
            name
            for name, topic in known.items()
            if max(partitions[name], default=-1) >= topic.partition_count
        ]
        if grown:
            known |= await catalog.refreshed(grown)
        return cls(known.items(), version=version)

    def topic(self, key: TopicKey, partition: int) -> Topic:
        found = self._known.get(key)
        if found is None:
            raise unknown_topic(self._version, key, partition)
        if not 0 <= partition < found.partition_count:
            raise UnknownTopicError(f"there is no partition {partition} of topic {key!r}")
        return found


def unknown_topic(version: int, key: TopicKey, partition: int) -> StratalogError:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return UnknownTopicIdError(f"no topic has the id {key}")
    return UnknownTopicError(f"there is no partition {partition} of topic {key!r}")


def topic_key(version: int, asked: NamedTopic) -> TopicKey:
    """The name or the id by which a request names a topic."""
    return asked.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else asked.name


def topic_values(version: int, key: TopicKey) -> Values:
    """The field by which the response names a topic."""
    return {"topic_id": key} if version >= FIRST_VERSION_WITH_TOPIC_IDS else {"name": key}
