"""Requests about several things at once: each succeeds or fails on its own."""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from stratalog.admin.errors import DuplicateEntryError
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.errors import StratalogError
from stratalog.ids import PartitionIndex, TopicPartition

log = logging.getLogger(__name__)

Entry = TypeVar("Entry")
Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class PartitionName(NamedTuple):
    """A partition by the name of its topic. It need not exist."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} of topic {self.topic!r}"


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of an operation that succeeded and has nothing to tell."""


DONE = Done()


async def each_once(
    entries: Iterable[tuple[Key, Entry]],
    work: Callable[[Entry], Awaitable[Result]],
    *,
    noun: str,
) -> dict[Key, Result | StratalogError]:
    """Do the work for each entry, one after the other, and return the outcomes by key.

    A key that comes twice is refused, because the order of the two would decide the result.
    `noun` names the kind of the keys in error messages.
    """
    listed = list(entries)
    times = Counter(key for key, _ in listed)
    outcomes: dict[Key, Result | StratalogError] = {}
    for key, entry in dict(listed).items():
        if times[key] > 1:
            message = f"the request names {noun} '{key}' {times[key]} times"
            outcomes[key] = DuplicateEntryError(message)
        else:
            outcomes[key] = await outcome_of(work(entry))
    for key, outcome in outcomes.items():
        if isinstance(outcome, StratalogError):
            log.info("A request about %s '%s' was refused: %s", noun, key, outcome)
    return outcomes


async def outcome_of(work: Awaitable[Result]) -> Result | StratalogError:
    """Like `attempt`, for work that is awaited."""
    try:
        return await work
    except StratalogError as error:
        return error


def attempt(work: Callable[[], Result]) -> Result | StratalogError:
    """Return the result, or the error if it is one of ours."""
    try:
        return work()
    except StratalogError as error:
        return error


def partition_in(topics: Mapping[str, Topic], name: PartitionName) -> TopicPartition:
    """Return the partition, or raise `UnknownTopicError` if none of the topics has it."""
    topic = topics.get(name.topic)
    if topic is None or not 0 <= name.partition < topic.partition_count:
        raise UnknownTopicError(f"there is no {name}")
    return TopicPartition(topic.id, PartitionIndex(name.partition))


def topic_names(names: Sequence[PartitionName]) -> list[str]:
    """Return the topics of the partitions, each once, in their order."""
    return list(dict.fromkeys(name.topic for name in names))
