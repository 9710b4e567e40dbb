"""The offsets of a stream: as Spark keeps them in a checkpoint, and how far a batch goes. Pure.

A checkpoint has them as those of the Kafka source are: `{"orders": {"0": 23}}`, where 23 is the
next offset to be read. Spark notes where batches end, and not where the first one began; so the end
of the first batch says that, too: `{"@start": {"orders": {"0": 17}}, "orders": {"0": 23}}`.

Offsets are those of a topic, and a topic that is deleted and created again is another one under the
same name. So the topics' ids are noted as well: `{"@ids": {"orders": "5f0c..."}, "orders": ...}`.
Checkpoints of earlier versions have none, and the names must do.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias
from uuid import UUID

from stratalog.ids import Offset, TopicId

Partition: TypeAlias = tuple[str, int]
Offsets: TypeAlias = dict[Partition, Offset]
TopicIds: TypeAlias = Mapping[str, TopicId]
OffsetsJson: TypeAlias = dict[str, Any]
"""Numbers by partition, by topic."""

_NO_TOPIC = "@"
"""No topic's name can begin like this."""
_START = "@start"
_IDS = "@ids"


def to_json(
    offsets: Mapping[Partition, Offset],
    topic_ids: TopicIds | None = None,
    *,
    start: OffsetsJson | None = None,
) -> OffsetsJson:
    """In order, because Spark compares the texts to see whether there is anything new."""
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
    """Where the batch began that ends here, if it was the first of its query."""
    return document.get(_START)


def ids_in(document: OffsetsJson) -> dict[str, TopicId]:
    """The topics whose offsets these are, as far as that was noted."""
    return {topic: TopicId(UUID(text)) for topic, text in document.get(_IDS, {}).items()}


def made_anew(before: TopicIds, after: TopicIds) -> list[str]:
    """The names that stand for other topics than before."""
    return sorted(name for name in before.keys() & after.keys() if before[name] != after[name])


def lag(start: Mapping[Partition, Offset], end: Mapping[Partition, Offset]) -> dict[Partition, int]:
    """How many offsets lie between, of the partitions that have any."""
    return {key: end[key] - start[key] for key in end if key in start and end[key] > start[key]}


def admit(
    start: Mapping[Partition, Offset], end: Mapping[Partition, Offset], max_offsets: int
) -> Offsets:
    """Where a batch of at most so many offsets ends.

    Partitions share in proportion to what they have, so that all of them catch up at about the
    same time; and none is left out while there is one offset for each.
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
    """Divide `room`, which is less than all that waits, by largest remainders."""
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
