"""The footer that makes an object self-describing: which bytes belong to which partition.

Readers use coordinates and can do without the footer. It is for people (`stratalog inspect`), for
the day the database is lost, and for readers of a part of a row (`batch_index`). The footer of a
block describes contents, not offsets. The footer of a split file describes both: its batches are
stamped, and its ranges are an index of offsets and times. Pure functions; the caller reads and
writes the bytes.

    payload   u16 version, u16 flags, object id, i32 broker, i64 created_ms, u32 partitions;
              per partition: topic id, u16 length and name, i32 partition, u32 entries;
              per entry: u64 byte offset, u32 size, u32 records,
                         of a split file u32 batches, i64 base offset, i64 last offset,
                         i64 max timestamp
    a writer  u64 tag, u64 sequence, u64 commits; it follows the preamble
    answers   u32 count; per answer: u64 sequence, u16 form,
                         form 0: i64 base offset
                         form 1: u32 count, i64 base offset of each batch;
                         they follow the entries of their partition
    trailer   u32 payload length, u32 CRC-32C of the payload, the magic

Version 4 is a block's: an entry is one batch, and the flags are 0. It alone has the writer and the
answers. A block cannot tell its own offsets, which are assigned after its upload. So the next
block of the same writer with batches of the same partition tells them: in its answers. Rows of a
partition are removed from the oldest on, so the block that tells lives as long as the block that it
tells of.

Version 3 is a block's without a writer. Version 2 is a split file's: an entry is a range of
adjoining batches, the broker is -1, and flag 0x0001 says that offsets, leader epochs and append
times are stamped. Version 1, which is only read, is version 3 without the times.
All integers are big-endian. The trailer is the last thing in the object, so that a reader without
any other knowledge starts at the end.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeAlias
from uuid import UUID

from crc32c import crc32c

from stratalog.batch.header import HEADER_BYTES
from stratalog.block.errors import FooterDamagedError
from stratalog.ids import NO_OFFSET, BrokerId, ObjectId, Offset, PartitionIndex, TopicId, WriterTag

TIMELESS_FOOTER_VERSION = 1
STAMPED_FOOTER_VERSION = 2
WRITERLESS_FOOTER_VERSION = 3
FOOTER_VERSION = 4
STAMPED_FLAG = 0x0001
FOOTER_MAGIC = b"STRATBLK"

_PREAMBLE = struct.Struct(">HH16siqI")
_WRITER = struct.Struct(">QQQ")
_TOPIC = struct.Struct(">16sH")
_PARTITION = struct.Struct(">iI")
_TIMELESS_BATCH = struct.Struct(">QII")
_BATCH = struct.Struct(">QIIq")
_RANGE = struct.Struct(">QIIIqqq")
_COUNT = struct.Struct(">I")
_ANSWER = struct.Struct(">QH")
_OFFSET = struct.Struct(">q")
_RUN_FORM = 0
_LIST_FORM = 1
_TRAILER = struct.Struct(">II8s")

TRAILER_BYTES = _TRAILER.size


class FooterBatch(NamedTuple):
    """One batch of a block. A tuple, because a block has thousands of them."""

    byte_offset: int
    byte_size: int
    record_count: int
    max_timestamp: int | None
    """As the producer wrote it. None in footers of the first version."""

    @property
    def byte_end(self) -> int:
        return self.byte_offset + self.byte_size


class FooterRange(NamedTuple):
    """Adjoining batches in a split file. They are stamped, so their offsets are known."""

    byte_offset: int
    byte_size: int
    record_count: int
    batch_count: int
    base_offset: Offset
    last_offset: Offset
    max_timestamp: int

    @property
    def byte_end(self) -> int:
        return self.byte_offset + self.byte_size


FooterEntry: TypeAlias = FooterBatch | FooterRange
_Place: TypeAlias = tuple[TopicId, PartitionIndex]


class EarlierAnswer(NamedTuple):
    """The offsets that an earlier block of the same writer got in one partition."""

    sequence: int
    """The place of that block among the blocks of its writer."""
    is_run: bool
    """True if all of its batches in the partition were accepted, one after the other."""
    offsets: Sequence[Offset]
    """The base offset of the run; otherwise of each batch in byte order, -1 of a batch that was not
    accepted: a rejected one, or a duplicate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FooterWriter:
    """The process that uploaded the block."""

    tag: WriterTag
    sequence: int = 0
    """The number of blocks that the writer sealed before this one."""
    commits: int = 0
    """The writer's commits that it knew of when it sealed this block."""


class FooterPartition(NamedTuple):
    topic_id: TopicId
    topic_name: str
    """The name when the block was written. Topics keep their id, not their name."""
    partition: PartitionIndex
    batches: Sequence[FooterEntry]
    """In a stamped footer these are ranges of batches: `FooterRange`."""
    answers: Sequence[EarlierAnswer] = ()
    """The answers of earlier blocks that no footer before this one tells."""

    @property
    def batch_count(self) -> int:
        ranges = (batch for batch in self.batches if isinstance(batch, FooterRange))
        return sum(each.batch_count - 1 for each in ranges) + len(self.batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFooter:
    block_id: ObjectId
    """The object's id, be it a block or a split file."""
    broker_id: BrokerId
    """-1 if the object was not written by a broker."""
    created_ms: int
    partitions: Sequence[FooterPartition]
    stamped: bool = False
    """True for a split file, whose batches hold their offsets."""
    writer: FooterWriter | None = None
    """None in footers of split files, and of the versions before 4."""

    @property
    def data_end(self) -> int:
        """The first byte after the last batch."""
        return self.partitions[-1].batches[-1].byte_end if self.partitions else 0


def encode_footer(footer: BlockFooter) -> bytes:
    """Encode the payload and the trailer, which follow the last batch."""
    problem = _problem(footer)
    assert problem is None, problem
    payload = b"".join(_encode_payload(footer))
    return payload + _TRAILER.pack(len(payload), crc32c(payload), FOOTER_MAGIC)


def stamped_footer_bytes(parts: Iterable[tuple[str, int]]) -> int:
    """Compute the size of a split file's footer, from topic names and numbers of ranges."""
    return (
        _PREAMBLE.size
        + TRAILER_BYTES
        + sum(
            _TOPIC.size + len(name.encode()) + _PARTITION.size + ranges * _RANGE.size
            for name, ranges in parts
        )
    )


def parse_trailer(last16: bytes | bytearray | memoryview) -> tuple[int, int]:
    """Read the length and the CRC of the payload from the last 16 bytes of an object."""
    if len(last16) != TRAILER_BYTES:
        raise FooterDamagedError(f"a trailer has {TRAILER_BYTES} bytes, not {len(last16)}")
    length, crc, magic = _TRAILER.unpack(last16)
    if magic != FOOTER_MAGIC:
        raise FooterDamagedError(
            f"the object ends in {magic!r} instead of {FOOTER_MAGIC!r}: not a block, or cut short"
        )
    if length < _PREAMBLE.size:
        raise FooterDamagedError(f"payload length {length} is less than {_PREAMBLE.size}")
    return length, crc


def decode_footer(data: bytes | bytearray | memoryview) -> BlockFooter:
    """Read and check a footer. `data` is exactly the payload and the trailer."""
    length, crc = parse_trailer(data[-TRAILER_BYTES:])
    payload = bytes(data[:-TRAILER_BYTES])
    if len(payload) != length:
        raise FooterDamagedError(
            f"the trailer speaks of {length} bytes of payload, but there are {len(payload)}"
        )
    if crc32c(payload) != crc:
        raise FooterDamagedError(
            f"the payload's CRC is {crc32c(payload):#010x}, the trailer says {crc:#010x}"
        )
    footer = _decode_payload(payload)
    problem = _problem(footer)
    if problem is not None:
        raise FooterDamagedError(problem)
    return footer


def _encode_payload(footer: BlockFooter) -> Iterator[bytes]:
    yield _PREAMBLE.pack(
        _version(footer),
        STAMPED_FLAG if footer.stamped else 0,
        footer.block_id.bytes,
        footer.broker_id,
        footer.created_ms,
        len(footer.partitions),
    )
    if footer.writer is not None:
        writer = footer.writer
        yield _WRITER.pack(writer.tag, writer.sequence, writer.commits)
    layout = _RANGE if footer.stamped else _BATCH
    for partition in footer.partitions:
        name = partition.topic_name.encode()
        yield _TOPIC.pack(partition.topic_id.bytes, len(name))
        yield name
        yield _PARTITION.pack(partition.partition, len(partition.batches))
        for entry in partition.batches:
            assert entry.max_timestamp is not None, "footers without times are only read"
            # The fields are declared in the order in which they are stored.
            yield layout.pack(*entry)
        if footer.writer is not None:
            yield _COUNT.pack(len(partition.answers))
            yield from map(_encode_answer, partition.answers)


def _version(footer: BlockFooter) -> int:
    if footer.stamped:
        return STAMPED_FOOTER_VERSION
    return WRITERLESS_FOOTER_VERSION if footer.writer is None else FOOTER_VERSION


def _encode_answer(answer: EarlierAnswer) -> bytes:
    offsets = b"".join(map(_OFFSET.pack, answer.offsets))
    if answer.is_run:
        return _ANSWER.pack(answer.sequence, _RUN_FORM) + offsets
    lead = _ANSWER.pack(answer.sequence, _LIST_FORM)
    return lead + _COUNT.pack(len(answer.offsets)) + offsets


class _Cursor:
    """Takes values off the front of the payload and never reads past its end."""

    def __init__(self, payload: bytes) -> None:
        self._payload = memoryview(payload)
        self._position = 0

    def take(self, size: int, name: str) -> memoryview:
        end = self._position + size
        if end > len(self._payload):
            raise FooterDamagedError(
                f"the payload ends {end - len(self._payload)} bytes short of {name}"
            )
        taken = self._payload[self._position : end]
        self._position = end
        return taken

    def finish(self) -> None:
        rest = len(self._payload) - self._position
        if rest:
            raise FooterDamagedError(f"the payload has {rest} bytes after its last batch")


def _decode_payload(payload: bytes) -> BlockFooter:
    cursor = _Cursor(payload)
    preamble = _PREAMBLE.unpack(cursor.take(_PREAMBLE.size, "its preamble"))
    version, flags, block_id, broker_id, created_ms, partition_count = preamble
    if version not in _ENTRIES:
        raise FooterDamagedError(
            f"footer version {version} is none of {', '.join(map(str, _ENTRIES))}:"
            " written by a newer Stratalog?"
        )
    stamped = version == STAMPED_FOOTER_VERSION
    if flags != (STAMPED_FLAG if stamped else 0):
        raise FooterDamagedError(f"flags {flags:#06x} are unknown: written by a newer Stratalog?")
    writer = _decode_writer(cursor) if version == FOOTER_VERSION else None
    partitions = tuple(_decode_partition(cursor, version) for _ in range(partition_count))
    cursor.finish()
    return BlockFooter(
        block_id=ObjectId(UUID(bytes=block_id)),
        broker_id=BrokerId(broker_id),
        created_ms=created_ms,
        partitions=partitions,
        stamped=stamped,
        writer=writer,
    )


def _decode_writer(cursor: _Cursor) -> FooterWriter:
    tag, sequence, commits = _WRITER.unpack(cursor.take(_WRITER.size, "its writer"))
    return FooterWriter(tag=WriterTag(tag), sequence=sequence, commits=commits)


def _decode_partition(cursor: _Cursor, version: int) -> FooterPartition:
    topic_id, name_bytes = _TOPIC.unpack(cursor.take(_TOPIC.size, "a topic id"))
    name = bytes(cursor.take(name_bytes, "a topic name"))
    partition, batch_count = _PARTITION.unpack(cursor.take(_PARTITION.size, "a partition"))
    layout, decode = _ENTRIES[version]
    entries = cursor.take(layout.size * batch_count, f"{batch_count} batches")
    try:
        topic_name = name.decode()
    except UnicodeDecodeError as error:
        raise FooterDamagedError(f"topic name {name!r} is not UTF-8") from error
    batches = tuple(decode(*fields) for fields in layout.iter_unpack(entries))
    return FooterPartition(
        topic_id=TopicId(UUID(bytes=topic_id)),
        topic_name=topic_name,
        partition=PartitionIndex(partition),
        batches=batches,
        answers=_decode_answers(cursor) if version == FOOTER_VERSION else (),
    )


def _decode_answers(cursor: _Cursor) -> tuple[EarlierAnswer, ...]:
    (count,) = _COUNT.unpack(cursor.take(_COUNT.size, "a count of answers"))
    return tuple(_decode_answer(cursor) for _ in range(count))


def _decode_answer(cursor: _Cursor) -> EarlierAnswer:
    sequence, form = _ANSWER.unpack(cursor.take(_ANSWER.size, "an answer"))
    if form not in (_RUN_FORM, _LIST_FORM):
        raise FooterDamagedError(f"answers of form {form}: written by a newer Stratalog?")
    count = 1
    if form == _LIST_FORM:
        (count,) = _COUNT.unpack(cursor.take(_COUNT.size, "a count of offsets"))
    offsets = cursor.take(_OFFSET.size * count, f"{count} offsets")
    return EarlierAnswer(
        sequence=sequence,
        is_run=form == _RUN_FORM,
        offsets=tuple(Offset(offset) for (offset,) in _OFFSET.iter_unpack(offsets)),
    )


def _decode_timeless(byte_offset: int, byte_size: int, record_count: int) -> FooterBatch:
    return FooterBatch(byte_offset, byte_size, record_count, None)


_ENTRIES: dict[int, tuple[struct.Struct, Callable[..., FooterEntry]]] = {
    TIMELESS_FOOTER_VERSION: (_TIMELESS_BATCH, _decode_timeless),
    STAMPED_FOOTER_VERSION: (_RANGE, FooterRange),
    WRITERLESS_FOOTER_VERSION: (_BATCH, FooterBatch),
    FOOTER_VERSION: (_BATCH, FooterBatch),
}


def _problem(footer: BlockFooter) -> str | None:
    """Describe a contradiction in a footer: partitions and byte ranges must ascend."""
    previous: _Place | None = None
    data_end = 0
    for entry in footer.partitions:
        place = (entry.topic_id, entry.partition)
        problem = (
            _order_problem(place, previous)
            or _bytes_problem(entry.batches, data_end)
            or _range_problem(entry.batches, footer.stamped)
            or _answer_problem(entry, footer)
        )
        if problem is not None:
            return f"{entry.topic_name}-{entry.partition}: {problem}"
        data_end = entry.batches[-1].byte_end
        previous = place
    return None


def _order_problem(place: _Place, previous: _Place | None) -> str | None:
    if place[1] < 0:
        return "a partition is never negative"
    if previous is not None and place <= previous:
        return "partitions are not in ascending order"
    return None


def _bytes_problem(entries: Sequence[FooterEntry], data_end: int) -> str | None:
    if not entries:
        return "a partition without batches"
    for entry in entries:
        byte_offset, byte_size = entry[:2]
        if byte_size < HEADER_BYTES:
            return f"{byte_size} bytes are too few for a record batch"
        if byte_offset < data_end:
            return f"the batch at byte {byte_offset} begins before {data_end}"
        data_end = byte_offset + byte_size
    return None


def _answer_problem(entry: FooterPartition, footer: BlockFooter) -> str | None:
    if not entry.answers:
        return None
    if footer.writer is None:
        return "answers without a writer"
    for answer in entry.answers:
        if footer.writer is not None and answer.sequence >= footer.writer.sequence:
            return f"block {footer.writer.sequence} tells the answers of {answer.sequence}"
        if answer.is_run and len(answer.offsets) != 1:
            return f"a run of batches with {len(answer.offsets)} base offsets"
        if min(answer.offsets, default=0) < (0 if answer.is_run else NO_OFFSET):
            return f"offset {min(answer.offsets)} in the answers of block {answer.sequence}"
    if any(each.sequence <= before.sequence for before, each in pairwise(entry.answers)):
        return "answers are not in ascending order"
    return None


def _range_problem(entries: Sequence[FooterEntry], stamped: bool) -> str | None:
    if not stamped and not isinstance(entries[0], FooterRange):
        return None
    ranges = [entry for entry in entries if isinstance(entry, FooterRange)]
    if len(ranges) != (len(entries) if stamped else 0):
        return "offsets are known of some ranges only"
    for each in ranges:
        if each.batch_count < 1 or each.base_offset < 0 or each.last_offset < each.base_offset:
            return f"offsets {each.base_offset} to {each.last_offset} are no range of batches"
    for before, each in pairwise(ranges):
        if each.base_offset != before.last_offset + 1:
            return f"offset {each.base_offset} follows {before.last_offset}"
    return None
