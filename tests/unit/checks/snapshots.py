"""Values as a healthy control plane and store would answer with, to be damaged by a test."""

from uuid import UUID

from stratalog.batch.build import build_batch
from stratalog.batch.header import TimestampType
from stratalog.batch.records import Record
from stratalog.block.keys import block_key
from stratalog.control.brokers.model import BrokerInfo
from stratalog.control.log.model import Coordinates, PartitionState, WriteTier
from stratalog.control.objects.model import ObjectKind, StoredObjectRow
from stratalog.ids import BrokerId, LeaderEpoch, ObjectId, Offset, PartitionIndex, TopicId, uuid7
from stratalog.objects.store import ObjectInfo

CREATED_MS = 1_700_000_000_000
TOPIC = TopicId(UUID(int=1))
OBJECT = ObjectId(uuid7(CREATED_MS, lambda size: bytes(size)))
KEY = block_key(OBJECT)

STATE = PartitionState(
    topic_id=TOPIC,
    partition=PartitionIndex(0),
    log_start=Offset(12),
    remote_end=Offset(10),
    block_start=Offset(10),
    block_end=Offset(40),
    high_watermark=Offset(40),
    last_stable=Offset(40),
    write_tier=WriteTier.BLOCK,
    leader_epoch=LeaderEpoch(0),
    size_bytes=3000,
    last_commit_ms=CREATED_MS,
)


def row(base: int, last: int, *, committed_ms: int = CREATED_MS, epoch: int = 0) -> Coordinates:
    return Coordinates(
        topic_id=TOPIC,
        partition=PartitionIndex(0),
        base_offset=Offset(base),
        last_offset=Offset(last),
        object_id=OBJECT,
        object_key=KEY,
        byte_offset=0,
        byte_size=1000,
        max_timestamp=CREATED_MS,
        timestamp_type=TimestampType.CREATE_TIME,
        committed_ms=committed_ms,
        leader_epoch=LeaderEpoch(epoch),
        stamped=False,
    )


ROWS = [row(10, 19), row(20, 29), row(30, 39)]

INFO = ObjectInfo(key=KEY, size_bytes=1000, modified_ms=CREATED_MS, etag="e")
OBJECT_ROW = StoredObjectRow(
    object_id=OBJECT,
    key=KEY,
    kind=ObjectKind.BLOCK,
    size_bytes=1000,
    committed_ms=CREATED_MS,
    marked_ms=None,
)


def broker(number: int) -> BrokerInfo:
    return BrokerInfo(
        broker_id=BrokerId(number),
        host="localhost",
        port=9092 + number,
        rack=None,
        incarnation=UUID(int=number),
        alive=True,
    )


def batch(count: int, *, base_offset: int = 0, leader_epoch: int = -1) -> bytes:
    records = [
        Record(base_offset + place, CREATED_MS + place, b"key", b"value %d" % place)
        for place in range(count)
    ]
    return build_batch(records, base_offset=base_offset, leader_epoch=leader_epoch)
