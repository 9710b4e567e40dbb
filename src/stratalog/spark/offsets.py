"""The offsets of a stream, as Spark keeps them in a checkpoint, and the end of a batch. Pure.

A checkpoint has the form of the Kafka source: `{"orders": {"0": 23}}`, where 23 is the next offset
to be read. Spark stores the end of each batch, but not the start of the first one. So the end of
the first batch also has its start: `{"@start": {"orders": {"0": 17}}, "orders": {"0": 23}}`.

Offsets belong to a topic, and a topic that is deleted and created again is another topic of the
same name. So the checkpoint also has the topics' ids: `{"@ids": {"orders": "5f0c..."}, "orders":
...}`. Checkpoints of earlier versions have no ids; for them, the names must do.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias
from uuid import UUID

from stratalog.ids import Offset, TopicId

Partition: TypeAlias = tuple[str, int]
Offsets: TypeAlias = dict[Partition, Offset]
TopicIds: TypeAlias = Mapping[str, TopicId]
OffsetsJson: TypeAlias = dict[str, Any]
"""Offsets by topic and then by partition, and the keys that begin with `@`."""

_NO_TOPIC = "@"
"""The first character of the keys that are no topics. No topic's name can begin with it."""
_START = "@start"
_IDS = "@ids"


def to_json(
    offsets: Mapping[Partition, Offset],
    topic_ids: TopicIds | None = None,
    *,
    start: OffsetsJson | None = None,
) -> OffsetsJson:
    """Return the document in sorted order, because Spark compares texts to detect new offsets."""
    document: OffsetsJson = {} if start is None else {_START: start}
    known = topic_ids or {}
    ids = {name: str(known[name]) for name in sorted({name for name, _ in offsets} & set(known))}
    if ids:
        document[_IDS] = ids
    for (topic, partition), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return document


def from_json(document: Mapping[str, Any]) -> Offsets:
    return {
        (topic, int(partition)): Offset(offset)
        for topic, partitions in document.items()
        if not topic.startswith(_NO_TOPIC)
        for partition, offset in partitions.items()
    }


def start_in(document: OffsetsJson) -> OffsetsJson | None:
    """Return the start of the batch that ends here, if it was the first of its query."""
    return document.get(_START)


def ids_in(document: OffsetsJson) -> dict[str, TopicId]:
    """Return the ids of the topics, as far as the document has them."""
    return {topic: TopicId(UUID(text)) for topic, text in document.get(_IDS, {}).items()}


def replaced_topics(before: TopicIds, after: TopicIds) -> list[str]:
    """Return the names that stand for other topics than before."""
    return sorted(name for name in before.keys() & after.keys() if before[name] != after[name])


def lag(start: Mapping[Partition, Offset], end: Mapping[Partition, Offset]) -> dict[Partition, int]:
    """Return the number of offsets between, for each partition that has any."""
    return {key: end[key] - start[key] for key in end if key in start and end[key] > start[key]}


def admit(
    start: Mapping[Partition, Offset], end: Mapping[Partition, Offset], max_offsets: int
) -> Offsets:
    """Return the end of a batch of at most `max_offsets`.

    Partitions share in proportion to their waiting offsets, so that all of them catch up at about
    the same time. No partition is left out while there is one offset for each.
    """
    waiting = lag(start, end)
    if sum(waiting.values()) <= max_offsets:
        return dict(end)
    admitted = _share(waiting, max_offsets)
    return {
        key: Offset(start[key] + admitted[key]) if key in admitted else offset
        for key, offset in end.items()
    }


def _share(waiting: Mapping[Partition, int], room: int) -> dict[Partition, int]:
    """Divide `room`, which is less than the sum of `waiting`, by largest remainders."""
    one_each = 1 if len(waiting) <= room else 0
    total = sum(waiting.values()) - one_each * len(waiting)
    left = room - one_each * len(waiting)
    shares, remainders = {}, {}
    for key, size in waiting.items():
        share, remainders[key] = divmod((size - one_each) * left, total)
        shares[key] = share + one_each
    missing = room - sum(shares.values())
    for key in sorted(waiting, key=lambda key: (-remainders[key], key))[:missing]:
        shares[key] += 1
    return shares
