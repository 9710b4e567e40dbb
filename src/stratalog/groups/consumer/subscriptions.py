"""Resolves subscriptions of members to topics."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from stratalog.groups.consumer.model import Member, Subscription, TopicShape
from stratalog.groups.consumer.pattern import TopicPattern
from stratalog.ids import TopicId

compiled = lru_cache(maxsize=1024)(TopicPattern)
"""Cached, because members of a group mostly have the same pattern, and a pattern caches its
matches."""


def topic_names(members: Iterable[Member]) -> set[str]:
    """Return the topics that members subscribe to by name."""
    return {name for member in members for name in member.subscription.names}


def any_pattern(members: Iterable[Member]) -> bool:
    return any(member.subscription.pattern is not None for member in members)


def resolve(
    members: Mapping[str, Member], topics: Mapping[str, TopicShape]
) -> tuple[dict[str, Member], dict[TopicId, TopicShape]]:
    """Return the members with the topics that match their subscriptions, and these topics.

    `topics` has existing topics by name. It must contain all existing topics if a member has a
    pattern, else at least the ones that members subscribe to.
    """
    by_subscription: dict[Subscription, frozenset[TopicId]] = {}
    resolved: dict[str, Member] = {}
    for member_id, member in members.items():
        wanted = member.subscription
        if wanted not in by_subscription:
            by_subscription[wanted] = frozenset(_matching(wanted, topics))
        resolved[member_id] = _subscribed_to(member, by_subscription[wanted])
    every_id = frozenset().union(*by_subscription.values())
    shapes = {each.topic_id: each for each in topics.values() if each.topic_id in every_id}
    return resolved, shapes


def _matching(wanted: Subscription, topics: Mapping[str, TopicShape]) -> Iterator[TopicId]:
    for name in wanted.names:
        if name in topics:
            yield topics[name].topic_id
    if wanted.pattern is not None:
        pattern = compiled(wanted.pattern)
        for name, topic in topics.items():
            if pattern.matches(name):
                yield topic.topic_id


def _subscribed_to(member: Member, topic_ids: frozenset[TopicId]) -> Member:
    if member.topic_ids == topic_ids:
        return member
    return replace(member, topic_ids=topic_ids)
