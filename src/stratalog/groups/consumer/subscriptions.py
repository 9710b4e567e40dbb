"""Resolves subscriptions of members to topics."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from stratalog.groups.consumer.model import Member, Subscription, TopicShape
from stratalog.groups.consumer.pattern import TopicPattern
from stratalog.ids import TopicId

compiled = lru_cache(maxsize=32)(TopicPattern)
"""Cached, because members of a group mostly have the same pattern, and a pattern caches its
steps. The largest patterns take four megabytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsWanted:
    names: frozenset[str]
    patterns: frozenset[str]

    @property
    def all(self) -> bool:
        """True if a member subscribes by a pattern, for which every topic must be known."""
        return bool(self.patterns)

    def __le__(self, other: "TopicsWanted") -> bool:
        return self.patterns <= other.patterns and (other.all or self.names <= other.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsFound:
    """The result of a lookup: the topics that were asked for, and the ones of them that exist."""

    asked: TopicsWanted
    topics: Mapping[str, TopicShape]
    """Existing topics by name: all of them, if a pattern was asked for."""
    matches: Mapping[str, frozenset[str]]
    """The names that match, by pattern."""


def topic_names(members: Iterable[Member]) -> set[str]:
    """Return the topics that members subscribe to by name."""
    return {name for member in members for name in member.subscription.names}


def patterns_of(members: Iterable[Member]) -> set[str]:
    patterns = {member.subscription.pattern for member in members}
    return {pattern for pattern in patterns if pattern is not None}


def resolve(
    members: Mapping[str, Member], found: TopicsFound
) -> tuple[dict[str, Member], dict[TopicId, TopicShape]]:
    """Return the members with the topics that match their subscriptions, and these topics."""
    by_subscription: dict[Subscription, frozenset[TopicId]] = {}
    resolved: dict[str, Member] = {}
    for member_id, member in members.items():
        wanted = member.subscription
        if wanted not in by_subscription:
            by_subscription[wanted] = frozenset(_matching(wanted, found))
        resolved[member_id] = _subscribed_to(member, by_subscription[wanted])
    every_id = frozenset().union(*by_subscription.values())
    topics = found.topics.values()
    return resolved, {each.topic_id: each for each in topics if each.topic_id in every_id}


def _matching(wanted: Subscription, found: TopicsFound) -> Iterator[TopicId]:
    matches = found.matches[wanted.pattern] if wanted.pattern is not None else frozenset()
    for name in wanted.names | matches:
        if name in found.topics:
            yield found.topics[name].topic_id


def _subscribed_to(member: Member, topic_ids: frozenset[TopicId]) -> Member:
    if member.topic_ids == topic_ids:
        return member
    return replace(member, topic_ids=topic_ids)
