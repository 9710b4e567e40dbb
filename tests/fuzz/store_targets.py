"""Bytes of the object store, of the control plane and of other brokers, and texts of users: a disk
that turns bits, or a stranger who can write there, must not end a broker."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from crc32c import crc32c
from tests.fuzz.judge import Case, Target
from tests.unit.segment.remote_log_records import added

from stratalog.backup.manifest import parse_manifest as parse_backup
from stratalog.block.footer import (
    BlockFooter,
    EarlierAnswer,
    FooterBatch,
    FooterPartition,
    FooterRange,
    FooterWriter,
    decode_footer,
    encode_footer,
)
from stratalog.block.keys import block_key, parse_block_key, parse_split_key, split_key
from stratalog.block.witness import Witness, encode_witness, parse_witness, witness_key
from stratalog.cluster.hint_seal import HintSeal
from stratalog.cluster.hints import decode_hints, encode_hints
from stratalog.groups.classic.codec import decode as decode_classic
from stratalog.groups.classic.subscription import subscribed_topics
from stratalog.groups.consumer.codec import decode_state
from stratalog.groups.consumer.pattern import TopicPattern
from stratalog.ids import (
    BrokerId,
    ObjectId,
    Offset,
    PartitionIndex,
    TopicId,
    TopicPartition,
    WriterTag,
)
from stratalog.opening.marker import StoreMarker, encode_marker, parse_marker
from stratalog.recovery.deletion_notes import (
    Deletions,
    RecordsNote,
    TopicNote,
    encode_deletions,
    parse_deletions,
)
from stratalog.scan.conditions import parse_conditions
from stratalog.segment.custom_metadata import (
    CustomMetadata,
    decode_custom_metadata,
    encode_custom_metadata,
)
from stratalog.segment.epoch_checkpoint import decode_checkpoint
from stratalog.segment.keys import parse_segment_key
from stratalog.segment.manifest import parse_manifest
from stratalog.segment.offset_index import OffsetIndex
from stratalog.segment.producer_snapshot import decode_snapshot
from stratalog.segment.remote_log_metadata import decode_record, encode_record
from stratalog.segment.seek_table import SeekEntry, decode_seek_table, encode_seek_table
from stratalog.segment.time_index import TimeIndex
from stratalog.segment.txn_index import decode_aborted

_GOLDEN = Path(__file__).parent.parent / "golden"
_KAFKA = _GOLDEN / "segment_kafka411"
_TOPIC = TopicId(UUID(int=7))
_FOOTER_TRAILER = struct.Struct(">II8s")
_SNAPSHOT_CRC = struct.Struct(">I")


def store_targets() -> list[Target]:
    return [
        Target("footers", 2.5, [Case(good, _footer) for good in _footers()]),
        Target("manifests of segments", 2, [Case(good, _manifest) for good in _manifests()]),
        Target("indexes", 2.5, _index_cases()),
        Target("producer snapshots", 5, [Case(_golden("*.snapshot"), _snapshot)]),
        Target("epoch checkpoints", 5.2, [Case(_checkpoint(), decode_checkpoint)]),
        Target("metadata of Kafka's segments", 1.5, _metadata_cases()),
        Target("markers and backups", 1.6, _marker_cases()),
        Target("keys", 6.4, _key_cases()),
        Target("hints", 2.4, _hint_cases()),
        Target("states of groups", 2, _group_cases()),
        Target("texts of users", 1.6, _text_cases()),
    ]


def _footers() -> list[bytes]:
    return [encode_footer(_block(writer, None)) for writer in (None, _writer())] + [
        encode_footer(_block(None, range_)) for range_ in _ranges()
    ]


def _writer() -> FooterWriter:
    return FooterWriter(tag=WriterTag(5), sequence=9, commits=8)


def _ranges() -> list[FooterRange]:
    return [
        FooterRange(
            byte_offset=0,
            byte_size=300,
            record_count=9,
            max_timestamp=5,
            batch_count=count,
            base_offset=Offset(0),
            last_offset=Offset(8),
        )
        for count in (1, 3)
    ]


def _block(writer: FooterWriter | None, range_: FooterRange | None) -> BlockFooter:
    batches = [
        FooterBatch(byte_offset=place * 100, byte_size=100, record_count=1, max_timestamp=place)
        for place in range(3)
    ]
    answers = [
        EarlierAnswer(sequence=1, is_run=True, offsets=(Offset(5),)),
        EarlierAnswer(sequence=2, is_run=False, offsets=(Offset(-1), Offset(7))),
    ]
    partition = FooterPartition(
        topic_id=_TOPIC,
        topic_name="orders",
        partition=PartitionIndex(3),
        batches=batches if range_ is None else [range_],
        answers=answers if writer is not None else (),
    )
    return BlockFooter(
        block_id=ObjectId(UUID(int=1)),
        broker_id=BrokerId(1 if range_ is None else -1),
        created_ms=5,
        partitions=[partition],
        stamped=range_ is not None,
        writer=writer,
    )


def _footer(data: bytes) -> None:
    """Read it as it is, then with a checksum that is right."""
    payload = data[: -_FOOTER_TRAILER.size]
    decode_footer(payload + _FOOTER_TRAILER.pack(len(payload), crc32c(payload), data[-8:]))


def _manifests() -> list[bytes]:
    goods = [path.read_bytes() for path in sorted(_GOLDEN.rglob("*.rsm-manifest"))]
    assert goods, "the golden segments"
    return goods


def _manifest(data: bytes) -> None:
    parse_manifest(data, "manifest")


def _golden(name: str) -> bytes:
    [path] = _KAFKA.glob(name)
    return path.read_bytes()[:480]


def _checkpoint() -> bytes:
    return (_GOLDEN / "leader-epoch-checkpoint").read_bytes()


def _snapshot(data: bytes) -> None:
    decode_snapshot(data[:2] + _SNAPSHOT_CRC.pack(crc32c(data[6:])) + data[6:])


def _index_cases() -> list[Case]:
    table = encode_seek_table([SeekEntry(10, 20, 30), SeekEntry(11, 21, 31)])
    return [
        Case(_golden("*.index"), _offset_index),
        Case(_golden("*.timeindex"), _time_index),
        Case(_golden("*.txnindex"), decode_aborted),
        Case(table, lambda data: decode_seek_table(data, "log")),
    ]


def _offset_index(data: bytes) -> None:
    index = OffsetIndex(data, Offset(5000))
    for offset in (0, 5000, 7000, 2**62):
        index.span(Offset(offset))
        index.entry_from(offset, 1 << 20)
    index.check(1 << 20)


def _time_index(data: bytes) -> None:
    index = TimeIndex(data, Offset(5000))
    for timestamp in (-1, 0, 1_700_000_000_000, 2**62):
        index.lookup(timestamp)
    index.check(Offset(9453))


def _metadata_cases() -> list[Case]:
    metadata = CustomMetadata(remote_bytes=9, object_prefix="pfx/", object_key="topic/0/1")
    return [
        Case(encode_record(added(1, 0, 9, (0, 0), (3, 5))), decode_record),
        Case(encode_custom_metadata(metadata), lambda data: decode_custom_metadata(data, "log")),
    ]


def _marker_cases() -> list[Case]:
    marker = StoreMarker(cluster_id=UUID(int=1), generation=5)
    witness = Witness(tag=WriterTag(5), commits=8, committed_ms=9)
    backup = {
        "format": 1,
        "name": "b",
        "created_ms": 1,
        "window_ms": 2,
        "cluster_id": str(UUID(int=1)),
        "generation": 3,
        "cluster": {"a": 1},
        "writers": [{"tag": 1}],
        "newest_object": str(UUID(int=2)),
        "migrations": [1, 2],
        "control_url": "sqlite:x",
        "objects_url": "file:x",
        "tables": [{"name": "t", "columns": [["a", "bigint"]], "rows": 1, "bytes": 2, "crc32c": 3}],
    }
    return [
        Case(encode_marker(marker), parse_marker),
        Case(json.dumps(backup).encode(), lambda data: parse_backup(data, "backup")),
        Case(encode_witness(witness), lambda data: parse_witness(witness_key(witness.tag), data)),
        Case(encode_deletions(_deletions()), parse_deletions),
    ]


def _deletions() -> Deletions:
    partition = TopicPartition(_TOPIC, PartitionIndex(3))
    return Deletions(
        records={partition: RecordsNote(Offset(5), 6)}, topics={_TOPIC: TopicNote(True, 7)}
    )


def _text(parse: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: parse(data.decode(errors="replace"))


def _key_cases() -> list[Case]:
    identifier = ObjectId(UUID(int=0x018BCFE5_6F69_7325_8000_000000000001))
    [log] = _GOLDEN.glob("aiven_compress-false_encrypt-false/pfx/*/7/*.log")
    segment = str(log.relative_to(log.parents[3]))
    return [
        Case(block_key(identifier).encode(), _text(parse_block_key)),
        Case(split_key(identifier).encode(), _text(parse_split_key)),
        Case(segment.encode(), _text(lambda key: parse_segment_key(key, "pfx/"))),
    ]


def _hint_cases() -> list[Case]:
    advanced = {TopicPartition(_TOPIC, PartitionIndex(index)): Offset(9) for index in range(3)}

    def seal() -> HintSeal:
        return HintSeal(key=b"key", cluster_id=UUID(int=1), incarnation=UUID(int=2))

    [good] = encode_hints(seal(), advanced)
    ours, theirs = seal(), seal()

    def sealed(data: bytes) -> None:
        """A sender of the cluster with other entries."""
        decode_hints(theirs, b"SLH2" + ours.seal(data))

    return [Case(good, lambda data: decode_hints(theirs, data)), Case(good[28:-16], sealed)]


def _group_cases() -> list[Case]:
    member = {
        "member_id": "m",
        "instance_id": None,
        "client_id": "c",
        "client_host": "/h",
        "session_timeout_ms": 1,
        "rebalance_timeout_ms": 2,
        "protocols": [["range", "AAAA"]],
        "assignment": "AAAA",
    }
    classic = {
        "state": "Stable",
        "generation": 1,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "leader": "m",
        "members": [member],
    }
    topic = str(UUID(int=7))
    consumer_member = {
        "id": "m",
        "instance": None,
        "rack": None,
        "client_id": "c",
        "client_host": "/h",
        "rebalance_timeout_ms": 1,
        "names": ["orders"],
        "pattern": None,
        "assignor": "uniform",
        "topics": [topic],
        "epoch": 1,
        "previous_epoch": 0,
        "state": "stable",
        "assigned": {topic: [0, 1]},
        "revoking": {},
    }
    consumer = {
        "group_epoch": 1,
        "assignment_epoch": 1,
        "members": [consumer_member],
        "target": {"m": {topic: [0]}},
        "topics": [{"id": topic, "name": "orders", "partitions": 2}],
    }
    subscription = struct.pack(">hi", 1, 2) + struct.pack(">h3sh3s", 3, b"abc", 3, b"def")
    return [
        Case(json.dumps(classic).encode(), decode_classic),
        Case(json.dumps(consumer).encode(), decode_state),
        Case(subscription, subscribed_topics),
    ]


def _text_cases() -> list[Case]:
    where = b"offset < 9 AND timestamp >= '2026-06-01T00:00:00Z' AND partition IN (1, 2)"
    pattern = rb"(?:ord[a-z]+|in\w*)-\d{2,3}.*[^a-c]?$"
    return [
        Case(where, _text(parse_conditions)),
        Case(pattern, _text(lambda text: TopicPattern(text).matches("orders-17abc"))),
    ]
