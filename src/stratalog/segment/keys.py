"""The keys of a segment's objects, as in Aiven's plugin for Kafka.

    <prefix><topic>-<topic id>/<partition>/<base offset, 20 digits>-<segment id><suffix>

The prefix goes in front as it is: a prefix that is a folder ends with a slash. Ids are written as
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
"""The suffixes in the order of upload: if the manifest is there, so are the other objects."""

_ID = r"[A-Za-z0-9_-]{22}"
_KEY = re.compile(
    rf"(?P<topic>[A-Za-z0-9._-]{{1,249}})-(?P<topic_id>{_ID})"
    rf"/(?P<partition>0|[1-9][0-9]{{0,9}})"
    rf"/(?P<base>[0-9]{{20}})-(?P<segment_id>{_ID})(?P<suffix>\.(?:log|indexes|rsm-manifest))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentKey:
    """The parts of an object's key, which name its segment."""

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
    """Return the keys of a segment's objects without their suffixes."""
    folder = f"{prefix}{topic_name}-{kafka_base64(topic_id)}/{partition}"
    return f"{folder}/{base_offset:020d}-{kafka_base64(segment_id)}"


def segment_keys(key_base: str) -> list[str]:
    """Return the keys of all objects of a segment, in the order of their upload."""
    return [key_base + suffix for suffix in SUFFIXES]


def parse_segment_key(key: str, prefix: str) -> SegmentKey | None:
    """Parse a key. None for a key that `segment_key_base` cannot have made.

    The sweeper deletes the objects that this function recognises. So the key must match exactly.
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
    """Parse an id as `kafka_base64` prints it. None for another spelling of the same id."""
    try:
        identifier = UUID(bytes=urlsafe_b64decode(text + "=="))
    except ValueError:
        return None
    return identifier if kafka_base64(identifier) == text else None
