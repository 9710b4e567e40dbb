"""Selection of the partitions that a request means."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NamedTuple

from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.scan.errors import (
    PartitionNotFoundError,
    ScanRefusedError,
    TopicNotFoundError,
    TopicReplacedError,
)
from stratalog.scan.model import Position, Positions, ScanRequest

_NEAR_NAMES = 3


class SelectedPartition(NamedTuple):
    topic: str
    key: TopicPartition

    @property
    def partition(self) -> PartitionIndex:
        return self.key.partition

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def position(self, positions: Positions) -> Position:
        return positions.by_partition.get((self.topic, self.partition), positions.default)


async def select_partitions(control: ControlPlane, request: ScanRequest) -> list[SelectedPartition]:
    """Return the partitions to read, in the order of topic and number."""
    _check(request)
    topics = sorted(await _topics(control, request), key=lambda topic: topic.name)
    _check_ids(topics, request)
    selected = [
        SelectedPartition(topic.name, TopicPartition(topic.id, partition))
        for topic in topics
        for partition in _partitions(topic, request)
    ]
    _check_positions(topics, request)
    return [one for one in selected if request.rows.has_partition(one.partition)]


def _check(request: ScanRequest) -> None:
    given = [bool(request.topics), request.pattern is not None, bool(request.assign)]
    if sum(given) != 1:
        raise ScanRefusedError(
            "name the topics in one way: topics, a pattern, or partitions to assign"
        )
    if not request.columns:
        raise ScanRefusedError("a scan needs at least one column")


async def _topics(control: ControlPlane, request: ScanRequest) -> Sequence[Topic]:
    if request.pattern is not None:
        pattern = _compiled(request.pattern)
        return [topic for topic in await control.topics.all() if pattern.fullmatch(topic.name)]
    names = list(dict.fromkeys(request.topics or request.assign))
    found = await control.topics.named(names)
    missing = set(names) - {topic.name for topic in found}
    if missing:
        raise await _not_found(control, sorted(missing))
    return found


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ScanRefusedError(
            f"the pattern {pattern!r} is no regular expression: {error}"
        ) from None


async def _not_found(control: ControlPlane, missing: Sequence[str]) -> TopicNotFoundError:
    known = [topic.name for topic in await control.topics.all()]
    near = list(
        dict.fromkeys(
            close for name in missing for close in get_close_matches(name, known, n=_NEAR_NAMES)
        )
    )
    names = ", ".join(repr(name) for name in missing)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else f" in {control.url}"
    missing_text = "there is no topic" if len(missing) == 1 else "there are no topics"
    return TopicNotFoundError(f"{missing_text} {names}{hint}")


def _check_ids(topics: Sequence[Topic], request: ScanRequest) -> None:
    for topic in topics:
        if request.topic_ids.get(topic.name, topic.id) != topic.id:
            raise TopicReplacedError(f"topic {topic.name!r} was deleted and created again")


def _partitions(topic: Topic, request: ScanRequest) -> Sequence[PartitionIndex]:
    if topic.name not in request.assign:
        return [PartitionIndex(number) for number in range(topic.partition_count)]
    assigned = sorted(set(request.assign[topic.name]))
    for partition in assigned:
        _check_exists(topic, partition)
    return assigned


def _check_positions(topics: Sequence[Topic], request: ScanRequest) -> None:
    """Refuse a position of a partition that is not read: most likely its name is wrong."""
    known = {topic.name: topic for topic in topics}
    for positions in (request.starting, request.ending):
        for name, partition in positions.by_partition:
            if name not in known:
                raise TopicNotFoundError(
                    f"an offset is given for {name}-{partition}, but that topic is not read"
                )
            _check_exists(known[name], partition)


def _check_exists(topic: Topic, partition: int) -> None:
    if not 0 <= partition < topic.partition_count:
        last = topic.partition_count - 1
        raise PartitionNotFoundError(
            f"topic {topic.name!r} has no partition {partition}: they are 0 to {last}"
        )
