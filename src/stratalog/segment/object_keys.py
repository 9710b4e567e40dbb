"""Where the objects of a segment lie: the keys of Aiven's plugin for Kafka.

    <prefix><topic>-<topic id>/<partition>/<base offset, 20 digits>-<segment id><suffix>

The prefix goes in front as it is: whoever wants a folder ends it with a slash. Ids are written as
Kafka prints them.
"""

import re
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from uuid import UUID

from stratalog.ids import Offset, PartitionIndex, SegmentId, TopicId, kafka_base64

LOG_SUFFIX = ".log"
INDEXES_SUFFIX = ".indexes"
MANIFEST_SUFFIX = ".rsm-manifest"
SUFFIXES = (LOG_SUFFIX, INDEXES_SUFFIX, MANIFEST_SUFFIX)
"""In the order of their upload: whoever sees the manifest sees the others."""

_ID = r"[A-Za-z0-9_-]{22}"
_KEY = re.compile(
    rf"(?P<topic>[A-Za-z0-9._-]{{1,249}})-(?P<topic_id>{_ID})"
    rf"/(?P<partition>0|[1-9][0-9]{{0,9}})"
    rf"/(?P<base>[0-9]{{20}})-(?P<segment_id>{_ID})(?P<suffix>\.(?:log|indexes|rsm-manifest))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentKey:
    """What the key of an object says about its segment."""

    topic_name: str
    topic_id: TopicId
    partition: PartitionIndex
    base_offset: Offset
    segment_id: SegmentId
    suffix: str


def segment_key_base(
    prefix: str,
    topic_name: str,
    topic_id: TopicId,
    partition: PartitionIndex,
    base_offset: Offset,
    segment_id: SegmentId,
) -> str:
    """The keys of a segment's objects without their suffixes."""
    folder = f"{prefix}{topic_name}-{kafka_base64(topic_id)}/{partition}"
    return f"{folder}/{base_offset:020d}-{kafka_base64(segment_id)}"


def segment_keys(key_base: str) -> list[str]:
    """The keys of all objects that a segment may have, in the order of their upload."""
    return [key_base + suffix for suffix in SUFFIXES]


def parse_segment_key(key: str, prefix: str) -> SegmentKey | None:
    """What a key says, or None for one that `segment_key_base` does not make.

    The sweeper deletes by this, so whatever is not exactly ours is nobody's business here.
    """
    match = _KEY.fullmatch(key.removeprefix(prefix)) if key.startswith(prefix) else None
    if match is None:
        return None
    topic_id = parse_uuid_text(match["topic_id"])
    segment_id = parse_uuid_text(match["segment_id"])
    partition, base_offset = int(match["partition"]), int(match["base"])
    if topic_id is None or segment_id is None or partition >> 31 or base_offset >> 63:
        return None
    return SegmentKey(
        topic_name=match["topic"],
        topic_id=TopicId(topic_id),
        partition=PartitionIndex(partition),
        base_offset=Offset(base_offset),
        segment_id=SegmentId(segment_id),
        suffix=match["suffix"],
    )


def parse_uuid_text(text: str) -> UUID | None:
    """The id that `kafka_base64` prints in this way, or None: every id has one spelling only."""
    try:
        identifier = UUID(bytes=urlsafe_b64decode(text + "=="))
    except ValueError:
        return None
    return identifier if kafka_base64(identifier) == text else None
