"""The topics, as this broker knows them.

The cache may say yes, and never no: for a topic that is not in it, the control plane is asked. A
topic that was deleted, migrated or grown through another broker is noticed when its entry expires,
or when a commit or a read contradicts the entry.
"""

from collections.abc import Iterable, Mapping, Sequence

from stratalog.clock import Clock
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.ids import TopicId

_EXPIRY_S = 5.0
"""The lifetime of an entry. It bounds how stale partition counts and configs are."""


class TopicCatalog:
    def __init__(self, *, control: ControlPlane, clock: Clock) -> None:
        self._control = control
        self._clock = clock
        self._by_name: dict[str, tuple[float, Topic]] = {}
        self._by_id: dict[TopicId, tuple[float, Topic]] = {}

    def cached(self, name: str) -> Topic | None:
        """Return the topic if it is cached. None does not mean that the topic does not exist."""
        return self._fresh(self._by_name.get(name))

    def cached_id(self, topic_id: TopicId) -> Topic | None:
        return self._fresh(self._by_id.get(topic_id))

    def last_known(self, name: str) -> Topic | None:
        """Return the topic as it was last seen, also if its entry has expired."""
        entry = self._by_name.get(name)
        return entry[1] if entry is not None else None

    def last_known_id(self, topic_id: TopicId) -> Topic | None:
        entry = self._by_id.get(topic_id)
        return entry[1] if entry is not None else None

    async def named(self, names: Sequence[str]) -> dict[str, Topic]:
        """Find the topics of these names that exist."""
        known = {name: topic for name in names if (topic := self.cached(name)) is not None}
        missing = [name for name in names if name not in known]
        if missing:
            known.update(
                (topic.name, topic)
                for topic in self._remember(await self._control.topics.named(missing))
            )
        return known

    async def refreshed(self, names: Sequence[str]) -> dict[str, Topic]:
        """Find the topics without the cache.

        For callers that change topics, or that show a change which another broker has just made.
        """
        found = {topic.name: topic for topic in await self._control.topics.named(names)}
        for name in names:
            entry = self._by_name.get(name)
            if entry is not None and name not in found:
                self.forget(entry[1].id)
        self._remember(found.values())
        return found

    async def with_ids(self, ids: Sequence[TopicId]) -> dict[TopicId, Topic]:
        known = {key: topic for key in ids if (topic := self.cached_id(key)) is not None}
        missing = [key for key in ids if key not in known]
        if missing:
            known.update(
                (topic.id, topic)
                for topic in self._remember(await self._control.topics.with_ids(missing))
            )
        return known

    async def all(self) -> list[Topic]:
        return self._remember(await self._control.topics.all())

    async def create(self, name: str, *, partition_count: int, configs: Mapping[str, str]) -> Topic:
        topic = await self._control.topics.create(
            name, partition_count=partition_count, configs=configs
        )
        return self._remember([topic])[0]

    async def add_partitions(self, topic: Topic, *, partition_count: int) -> Topic:
        grown = await self._control.topics.add_partitions(topic.id, partition_count=partition_count)
        return self._remember([grown])[0]

    async def set_configs(self, topic: Topic, changes: Mapping[str, str | None]) -> Topic:
        """Set or, with None, unset configs. Other brokers follow when their entries expire."""
        changed = await self._control.topics.set_configs(topic.id, changes)
        return self._remember([changed])[0]

    async def delete(self, topic: Topic) -> None:
        try:
            await self._control.topics.delete(topic.id)
        finally:
            self.forget(topic.id)

    def forget(self, topic_id: TopicId) -> None:
        """Drop the entry of a topic that was found to be out of date."""
        entry = self._by_id.pop(topic_id, None)
        if entry is not None:
            self._by_name.pop(entry[1].name, None)

    def _fresh(self, entry: tuple[float, Topic] | None) -> Topic | None:
        if entry is None or self._clock.monotonic() > entry[0]:
            return None
        return entry[1]

    def _remember(self, topics: Iterable[Topic]) -> list[Topic]:
        expires = self._clock.monotonic() + _EXPIRY_S
        remembered = list(topics)
        for topic in remembered:
            earlier = self._by_name.get(topic.name)
            if earlier is not None and earlier[1].id != topic.id:
                self.forget(earlier[1].id)
            self._by_name[topic.name] = (expires, topic)
            self._by_id[topic.id] = (expires, topic)
        return remembered
