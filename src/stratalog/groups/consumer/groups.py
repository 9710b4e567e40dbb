"""The consumer groups of this broker: heartbeats in, answers when the change they made is saved."""

from collections.abc import Iterable
from dataclasses import dataclass

from stratalog.clock import Clock
from stratalog.control.groups.model import GroupKind, GroupRecord
from stratalog.control.topics.model import Topic
from stratalog.errors import RetriableError
from stratalog.groups.consumer.group import ConsumerGroup, Limits, TopicsFound, TopicsWanted
from stratalog.groups.consumer.heartbeat import Heartbeat, HeartbeatAnswer, check_heartbeat
from stratalog.groups.consumer.model import GroupState, TopicShape
from stratalog.groups.coordinator import GroupCoordinator
from stratalog.groups.errors import GroupNotFoundError
from stratalog.groups.held import HeldGroup
from stratalog.settings import GroupsSettings
from stratalog.topic.catalog import TopicCatalog


class NotSavedError(RetriableError):
    """A change before this one could not be saved, and took this one along."""


@dataclass(frozen=True, slots=True)
class _Beaten:
    """A heartbeat's answer, to be given if the group has had no setback until it is saved."""

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
        self._limits = Limits(
            session_ms=settings.consumer_session_timeout_ms,
            max_members=settings.max_size,
            look_ms=settings.consumer_topics_poll_ms,
        )
        self._all_topics: list[Topic] = []
        self._all_until_s = 0.0
        coordinator.loads(GroupKind.CONSUMER, self._load)

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        check_heartbeat(beat)
        found: TopicsFound | None = None
        while True:

            def act(
                held: HeldGroup, now_s: float, found: TopicsFound | None = found
            ) -> _Beaten | TopicsWanted:
                return self._beat(held, beat, found, now_s)

            outcome = await self._coordinator.change(beat.group_id, act)
            if isinstance(outcome, _Beaten):
                return _confirmed(outcome)
            found = await self._look(outcome)

    async def describe(self, group_id: str) -> GroupState:
        def state(held: HeldGroup, now_s: float) -> GroupState:  # noqa: ARG001
            if not isinstance(held.group, ConsumerGroup):
                raise _not_found(group_id)
            return held.group.state

        return await self._coordinator.look(group_id, state)

    def _load(self, record: GroupRecord, now_s: float) -> ConsumerGroup:
        return ConsumerGroup.load(record.group_id, self._limits, data=record.state, now_s=now_s)

    def _beat(
        self, held: HeldGroup, beat: Heartbeat, found: TopicsFound | None, now_s: float
    ) -> _Beaten | TopicsWanted:
        """The answer, or which topics must be looked at first."""
        group = self._group(held, beat, now_s)
        wanted = group.wants(beat)
        if found is None or not wanted <= found.asked:
            if not beat.leaves and self._must_look(group, beat, now_s):
                return wanted
            found = None
        answer = group.heartbeat(beat, found, now_s)
        if held.group is not group:
            held.replace(group)
        return _Beaten(answer, group, group.setbacks)

    def _group(self, held: HeldGroup, beat: Heartbeat, now_s: float) -> ConsumerGroup:
        """A classic group that is empty becomes a consumer group when the first member joins."""
        if isinstance(held.group, ConsumerGroup):
            return held.group
        if not beat.joins or not held.group.is_empty:
            raise _not_found(held.group_id)
        return ConsumerGroup.succeeding(
            held.group_id, self._limits, earlier=held.group, now_s=now_s
        )

    def _must_look(self, group: ConsumerGroup, beat: Heartbeat, now_s: float) -> bool:
        return group.must_look(beat, now_s) or self._changed_here(group, beat)

    def _changed_here(self, group: ConsumerGroup, beat: Heartbeat) -> bool:
        """Whether this broker already knows better than the group does about its topics."""
        known = {shape.name: shape for shape in group.state.topics.values()}
        return any(
            topic is not None and known.get(name) != _shape(topic)
            for name in group.wants(beat).names
            for topic in [self._catalog.cached(name)]
        )

    async def _look(self, wanted: TopicsWanted) -> TopicsFound:
        if wanted.all:
            return TopicsFound.of(wanted, map(_shape, await self._every_topic()))
        found = await self._catalog.named(sorted(wanted.names))
        return TopicsFound.of(wanted, map(_shape, found.values()))

    async def _every_topic(self) -> Iterable[Topic]:
        """Looked up once for all groups that have patterns."""
        now_s = self._clock.monotonic()
        if now_s >= self._all_until_s:
            self._all_topics = await self._catalog.all()
            self._all_until_s = now_s + self._limits.look_ms / 1000
        # What this broker has changed since is newer.
        return [self._catalog.cached(topic.name) or topic for topic in self._all_topics]


def _confirmed(beaten: _Beaten) -> HeartbeatAnswer:
    if beaten.group.setbacks != beaten.setbacks:
        raise NotSavedError("the group's state could not be saved: send the heartbeat again")
    return beaten.answer


def _shape(topic: Topic) -> TopicShape:
    return TopicShape(topic_id=topic.id, name=topic.name, partition_count=topic.partition_count)


def _not_found(group_id: str) -> GroupNotFoundError:
    return GroupNotFoundError(
        f"{group_id!r} is not a group whose members use the consumer protocol"
    )
