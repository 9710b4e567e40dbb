"""The consumer groups of this broker. A heartbeat is answered when the change it made is saved."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from stratalog.clock import Clock
from stratalog.control.groups.model import GroupKind, GroupRecord
from stratalog.control.topics.model import Topic
from stratalog.groups.consumer.configs import GroupConfigs
from stratalog.groups.consumer.errors import NotSavedError
from stratalog.groups.consumer.group import ConsumerGroup, Limits
from stratalog.groups.consumer.heartbeat import Heartbeat, HeartbeatAnswer, check_heartbeat
from stratalog.groups.consumer.model import GroupState, TopicShape
from stratalog.groups.consumer.pattern_matches import PatternMatches
from stratalog.groups.consumer.subscriptions import TopicsFound, TopicsWanted
from stratalog.groups.coordinator import GroupCoordinator
from stratalog.groups.errors import GroupNotFoundError
from stratalog.groups.loaded_group import LoadedGroup
from stratalog.groups.member_size import check_member_size
from stratalog.settings import GroupsSettings
from stratalog.topic.catalog import TopicCatalog


@dataclass(frozen=True, slots=True)
class _PendingAnswer:
    """The answer to a heartbeat. It is valid if the group has no setback until it is saved."""

    answer: HeartbeatAnswer
    group: ConsumerGroup
    setbacks: int


class ConsumerGroups:
    def __init__(
        self,
        coordinator: GroupCoordinator,
        catalog: TopicCatalog,
        settings: GroupsSettings,
        *,
        clock: Clock,
    ) -> None:
        self._coordinator = coordinator
        self._catalog = catalog
        self._clock = clock
        self._configs = GroupConfigs(coordinator.configs, settings, clock=clock)
        self._limits = Limits(
            session_ms=settings.consumer_session_timeout_ms,
            max_members=settings.max_size,
            look_ms=settings.consumer_topics_poll_ms,
        )
        self._max_member_bytes = settings.max_member_bytes
        self._matches = PatternMatches(clock)
        self._all_topics: list[Topic] = []
        self._all_until_s = 0.0
        coordinator.register_loader(GroupKind.CONSUMER, self._load)

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        check_heartbeat(beat)
        names = beat.topic_names or ()
        check_member_size(beat.group_id, sum(map(len, names)), most=self._max_member_bytes)
        await self._configs.refresh()
        found: TopicsFound | None = None
        while True:

            def act(
                loaded: LoadedGroup, now_s: float, found: TopicsFound | None = found
            ) -> _PendingAnswer | TopicsWanted:
                return self._beat(loaded, beat, found, now_s)

            outcome = await self._coordinator.change(
                beat.group_id, act, maker=beat.client_host if beat.joins else None
            )
            if isinstance(outcome, _PendingAnswer):
                return _confirmed(outcome)
            found = await self._look(outcome)

    def heartbeat_ms(self, group_id: str) -> int:
        """Return the interval of heartbeats that members of the group are asked for."""
        return self._configs.heartbeat_ms(group_id)

    async def describe(self, group_id: str) -> GroupState:
        def state(loaded: LoadedGroup, now_s: float) -> GroupState:  # noqa: ARG001
            if not isinstance(loaded.group, ConsumerGroup):
                raise _not_found(group_id)
            return loaded.group.state

        return await self._coordinator.look(group_id, state)

    def _load(self, record: GroupRecord, now_s: float) -> ConsumerGroup:
        limits = self._limits_of(record.group_id)
        return ConsumerGroup.load(record.group_id, limits, data=record.state, now_s=now_s)

    def _limits_of(self, group_id: str) -> Limits:
        return replace(self._limits, session_ms=self._configs.session_ms(group_id))

    def _beat(
        self, loaded: LoadedGroup, beat: Heartbeat, found: TopicsFound | None, now_s: float
    ) -> _PendingAnswer | TopicsWanted:
        """Return the answer, or the topics that must be looked up first."""
        group = self._group(loaded, beat, now_s)
        wanted = group.wants(beat)
        if found is None or not wanted <= found.asked:
            if not beat.leaves and self._must_look(group, beat, now_s):
                return wanted
            found = None
        self._coordinator.limits.check_join(beat.group_id, group.added_bytes(beat))
        group.set_session_ms(self._configs.session_ms(loaded.group_id))
        answer = group.heartbeat(beat, found, now_s)
        if loaded.group is not group:
            loaded.replace(group)
        return _PendingAnswer(answer, group, group.setbacks)

    def _group(self, loaded: LoadedGroup, beat: Heartbeat, now_s: float) -> ConsumerGroup:
        """Return the group of a heartbeat. An empty classic group becomes a consumer group when the
        first member joins."""
        if isinstance(loaded.group, ConsumerGroup):
            return loaded.group
        if not beat.joins or not loaded.group.is_empty:
            raise _not_found(loaded.group_id)
        return ConsumerGroup.succeeding(
            loaded.group_id, self._limits_of(loaded.group_id), earlier=loaded.group, now_s=now_s
        )

    def _must_look(self, group: ConsumerGroup, beat: Heartbeat, now_s: float) -> bool:
        return group.must_look(beat, now_s) or self._changed_here(group, beat)

    def _changed_here(self, group: ConsumerGroup, beat: Heartbeat) -> bool:
        """Return whether this broker has a newer version of a topic in its cache than the group."""
        known = {shape.name: shape for shape in group.state.topics.values()}
        return any(
            topic is not None and known.get(name) != _shape(topic)
            for name in group.wants(beat).names
            for topic in [self._catalog.cached(name)]
        )

    async def _look(self, wanted: TopicsWanted) -> TopicsFound:
        found = (
            await self._every_topic()
            if wanted.all
            else (await self._catalog.named(sorted(wanted.names))).values()
        )
        topics = {topic.name: _shape(topic) for topic in found}
        matches = await self._matches.of(wanted.patterns, topics)
        return TopicsFound(asked=wanted, topics=topics, matches=matches)

    async def _every_topic(self) -> Iterable[Topic]:
        """Return all topics, from one lookup for all groups that have patterns."""
        now_s = self._clock.monotonic()
        if now_s >= self._all_until_s:
            self._all_topics = await self._catalog.all()
            self._all_until_s = now_s + self._limits.look_ms / 1000
        # Topics that this broker has changed since the lookup are newer in its cache.
        return [self._catalog.cached(topic.name) or topic for topic in self._all_topics]


def _confirmed(pending: _PendingAnswer) -> HeartbeatAnswer:
    if pending.group.setbacks != pending.setbacks:
        raise NotSavedError("the group's state could not be saved: send the heartbeat again")
    return pending.answer


def _shape(topic: Topic) -> TopicShape:
    return TopicShape(topic_id=topic.id, name=topic.name, partition_count=topic.partition_count)


def _not_found(group_id: str) -> GroupNotFoundError:
    return GroupNotFoundError(
        f"{group_id!r} is not a group whose members use the consumer protocol"
    )
