import struct
from dataclasses import replace
from uuid import UUID

import pytest
from crc32c import crc32c

from stratalog.block.errors import FooterDamagedError
from stratalog.block.footer import (
    FOOTER_MAGIC,
    TRAILER_BYTES,
    BlockFooter,
    EarlierAnswer,
    FooterBatch,
    FooterEntry,
    FooterPartition,
    FooterRange,
    FooterWriter,
    decode_footer,
    encode_footer,
    parse_trailer,
    stamped_footer_bytes,
)
from stratalog.ids import NO_BROKER, BrokerId, ObjectId, Offset, PartitionIndex, TopicId, WriterTag

TOPIC_A = TopicId(UUID(int=1))
TOPIC_B = TopicId(UUID(int=2))
MAX_MS = 1_600_000_000_000


def batch(byte_offset: int, byte_size: int = 100) -> FooterBatch:
    return FooterBatch(
        byte_offset=byte_offset, byte_size=byte_size, record_count=3, max_timestamp=MAX_MS
    )


def entry(topic_id: TopicId, partition: int, *batches: FooterEntry) -> FooterPartition:
    return FooterPartition(
        topic_id=topic_id,
        topic_name="orders",
        partition=PartitionIndex(partition),
        batches=batches,
    )


def footer_of(*partitions: FooterPartition) -> BlockFooter:
    return BlockFooter(
        block_id=ObjectId(UUID(int=7)),
        broker_id=BrokerId(3),
        created_ms=1_700_000_000_000,
        partitions=partitions,
    )


def stretch(
    byte_offset: int, base: int, last: int, *, batches: int = 2, byte_size: int = 150
) -> FooterRange:
    return FooterRange(
        byte_offset=byte_offset,
        byte_size=byte_size,
        record_count=4,
        batch_count=batches,
        base_offset=Offset(base),
        last_offset=Offset(last),
        max_timestamp=MAX_MS,
    )


def stamped_footer(*partitions: FooterPartition) -> BlockFooter:
    return replace(footer_of(*partitions), broker_id=NO_BROKER, stamped=True)


def sealed(payload: bytes) -> bytes:
    return payload + struct.pack(">II8s", len(payload), crc32c(payload), FOOTER_MAGIC)


FOOTER = footer_of(
    entry(TOPIC_A, 0, batch(0), batch(100)),
    entry(TOPIC_A, 2, batch(200)),
    entry(TOPIC_B, 0, batch(300, 61)),
)
PAYLOAD = encode_footer(FOOTER)[:-TRAILER_BYTES]


def test_a_footer_comes_back_as_it_was_written() -> None:
    assert decode_footer(encode_footer(FOOTER)) == FOOTER
    assert FOOTER.data_end == 361


def test_a_footer_without_partitions_is_one() -> None:
    assert decode_footer(encode_footer(footer_of())) == footer_of()
    assert footer_of().data_end == 0


def test_the_bytes_are_those_of_the_documented_layout() -> None:
    footer = footer_of(entry(TOPIC_A, 5, batch(0, 61)))
    assert encode_footer(footer) == sealed(
        struct.pack(">HH", 3, 0)
        + UUID(int=7).bytes
        + struct.pack(">iqI", 3, 1_700_000_000_000, 1)
        + UUID(int=1).bytes
        + struct.pack(">H", 6)
        + b"orders"
        + struct.pack(">iI", 5, 1)
        + struct.pack(">QIIq", 0, 61, 3, MAX_MS)
    )


def test_a_footer_of_the_first_version_tells_no_times() -> None:
    old = struct.pack(">HH", 1, 0) + UUID(int=7).bytes + struct.pack(">iqI", 3, 5, 1)
    old += UUID(int=1).bytes + struct.pack(">H", 6) + b"orders" + struct.pack(">iI", 5, 2)
    old += struct.pack(">QII", 0, 61, 3) + struct.pack(">QII", 61, 70, 1)
    [partition] = decode_footer(sealed(old)).partitions
    assert partition.batches == (
        FooterBatch(byte_offset=0, byte_size=61, record_count=3, max_timestamp=None),
        FooterBatch(byte_offset=61, byte_size=70, record_count=1, max_timestamp=None),
    )


def test_the_trailer_tells_length_and_crc() -> None:
    assert parse_trailer(encode_footer(FOOTER)[-16:]) == (len(PAYLOAD), crc32c(PAYLOAD))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "16 bytes, not 0"),
        (b"x" * 15, "16 bytes, not 15"),
        (b"x" * 16, "not a block, or cut short"),
        (struct.pack(">II8s", 35, 0, FOOTER_MAGIC), "35 is less than 36"),
        (encode_footer(FOOTER)[1:], "but there are"),
        (b"x" + encode_footer(FOOTER), "but there are"),
        (bytes([255]) + encode_footer(FOOTER)[1:], "CRC is"),
        (sealed(b"\0\5" + PAYLOAD[2:]), "version 5 is none of 1, 2, 3, 4"),
        (sealed(b"\0\2" + PAYLOAD[2:]), "flags 0x0000"),
        (sealed(b"\0\2\0\3" + PAYLOAD[4:]), "flags 0x0003"),
        (sealed(PAYLOAD[:2] + b"\0\1" + PAYLOAD[4:]), "flags 0x0001"),
        (sealed(PAYLOAD + b"\0"), "1 bytes after its last batch"),
        (sealed(PAYLOAD[:-1]), "1 bytes short of 1 batches"),
        (sealed(PAYLOAD[:-25]), "1 bytes short of a partition"),
        (sealed(PAYLOAD[:40]), "short of a topic id"),
        (sealed(PAYLOAD[:57]), "short of a topic name"),
        (sealed(PAYLOAD.replace(b"orders", b"\xfforder")), "is not UTF-8"),
    ],
)
def test_damage_is_named(data: bytes, message: str) -> None:
    with pytest.raises(FooterDamagedError, match=message):
        decode_footer(data)


@pytest.mark.parametrize(
    ("partitions", "message"),
    [
        ([entry(TOPIC_B, 0, batch(0)), entry(TOPIC_A, 0, batch(100))], "ascending"),
        ([entry(TOPIC_A, 1, batch(0)), entry(TOPIC_A, 0, batch(100))], "ascending"),
        ([entry(TOPIC_A, 1, batch(0)), entry(TOPIC_A, 1, batch(100))], "ascending"),
        ([entry(TOPIC_A, -1, batch(0))], "never negative"),
        ([entry(TOPIC_A, 0)], "without batches"),
        ([entry(TOPIC_A, 0, batch(0, 60))], "too few for a record batch"),
        ([entry(TOPIC_A, 0, batch(0), batch(99))], "byte 99 begins before 100"),
        ([entry(TOPIC_A, 0, batch(100)), entry(TOPIC_A, 1, batch(0))], "begins before 200"),
    ],
)
def test_a_footer_that_contradicts_itself_is_neither_written_nor_read(
    partitions: list[FooterPartition], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    footer = replace(FOOTER, partitions=tuple(partitions))
    with pytest.raises(AssertionError, match=message):
        encode_footer(footer)
    with monkeypatch.context() as patch:
        patch.setattr("stratalog.block.footer._problem", lambda footer: None)
        data = encode_footer(footer)
    with pytest.raises(FooterDamagedError, match=message):
        decode_footer(data)


WRITER = FooterWriter(tag=WriterTag(0xABCDE), sequence=12, commits=11)
TOLD = [
    EarlierAnswer(sequence=9, is_run=True, offsets=(Offset(70),)),
    EarlierAnswer(sequence=11, is_run=False, offsets=(Offset(80), Offset(-1), Offset(90))),
]


def telling(*answers: EarlierAnswer) -> BlockFooter:
    partition = entry(TOPIC_A, 5, batch(0, 61))._replace(answers=answers)
    return replace(footer_of(partition), writer=WRITER)


def test_the_bytes_of_a_footer_with_a_writer_are_those_of_the_documented_layout() -> None:
    footer = telling(*TOLD)
    assert decode_footer(encode_footer(footer)) == footer
    assert encode_footer(footer) == sealed(
        struct.pack(">HH", 4, 0)
        + UUID(int=7).bytes
        + struct.pack(">iqI", 3, 1_700_000_000_000, 1)
        + struct.pack(">QQQ", 0xABCDE, 12, 11)
        + UUID(int=1).bytes
        + struct.pack(">H", 6)
        + b"orders"
        + struct.pack(">iI", 5, 1)
        + struct.pack(">QIIq", 0, 61, 3, MAX_MS)
        + struct.pack(">I", 2)
        + struct.pack(">QHq", 9, 0, 70)
        + struct.pack(">QHIqqq", 11, 1, 3, 80, -1, 90)
    )


def test_a_form_of_answers_that_is_unknown_is_named() -> None:
    payload = encode_footer(telling(TOLD[0]))[:-TRAILER_BYTES]
    with pytest.raises(FooterDamagedError, match="form 9"):
        decode_footer(sealed(payload[:-10] + b"\0\x09" + payload[-8:]))


def test_a_footer_of_the_third_version_has_no_writer() -> None:
    assert encode_footer(FOOTER)[:2] == b"\0\3"
    assert decode_footer(encode_footer(FOOTER)).writer is None


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([TOLD[0]._replace(sequence=12)], "block 12 tells the answers of 12"),
        ([TOLD[1], TOLD[0]], "not in ascending order"),
        ([TOLD[0], TOLD[0]], "not in ascending order"),
        ([TOLD[0]._replace(offsets=())], "with 0 base offsets"),
        ([TOLD[0]._replace(offsets=(Offset(-1),))], "offset -1"),
        ([TOLD[1]._replace(offsets=(Offset(-2),))], "offset -2"),
    ],
)
def test_answers_that_contradict_themselves_are_not_written(
    answers: list[EarlierAnswer], message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        encode_footer(telling(*answers))


def test_answers_without_a_writer_are_not_written() -> None:
    with pytest.raises(AssertionError, match="without a writer"):
        encode_footer(replace(telling(TOLD[0]), writer=None))


def test_ranges_may_touch_and_may_leave_gaps() -> None:
    footer = footer_of(entry(TOPIC_A, 0, batch(0), batch(100), batch(1000)))
    assert decode_footer(encode_footer(footer)) == footer


def test_a_split_files_footer_comes_back_as_it_was_written() -> None:
    footer = stamped_footer(
        entry(TOPIC_A, 0, stretch(0, 0, 3), stretch(150, 4, 9, batches=3)),
        entry(TOPIC_B, 2, stretch(300, 1000, 1000, batches=1)),
    )
    assert decode_footer(encode_footer(footer)) == footer
    assert [each.batch_count for each in footer.partitions] == [5, 1]
    assert [each.batch_count for each in FOOTER.partitions] == [2, 1, 1]


def test_the_size_of_a_split_files_footer_is_known_before_it_is_made() -> None:
    footer = stamped_footer(
        entry(TOPIC_A, 0, stretch(0, 0, 3), stretch(150, 4, 9, batches=3)),
        entry(TOPIC_B, 2, stretch(300, 1000, 1000, batches=1)),
    )
    parts = [(each.topic_name, len(each.batches)) for each in footer.partitions]
    assert stamped_footer_bytes(parts) == len(encode_footer(footer))


def test_the_bytes_of_a_split_files_footer_are_those_of_the_documented_layout() -> None:
    footer = stamped_footer(entry(TOPIC_A, 5, stretch(0, 10, 19)))
    assert encode_footer(footer) == sealed(
        struct.pack(">HH", 2, 1)
        + UUID(int=7).bytes
        + struct.pack(">iqI", -1, 1_700_000_000_000, 1)
        + UUID(int=1).bytes
        + struct.pack(">H", 6)
        + b"orders"
        + struct.pack(">iI", 5, 1)
        + struct.pack(">QIIIqqq", 0, 150, 4, 2, 10, 19, MAX_MS)
    )


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        (entry(TOPIC_A, 0, stretch(0, 0, 3), stretch(150, 5, 9)), "offset 5 follows 3"),
        (entry(TOPIC_A, 0, stretch(0, 0, 3), stretch(150, 3, 9)), "offset 3 follows 3"),
        (entry(TOPIC_A, 0, stretch(0, 3, 2)), "3 to 2 are no range"),
        (entry(TOPIC_A, 0, stretch(0, -1, 2)), "-1 to 2 are no range"),
        (entry(TOPIC_A, 0, stretch(0, 0, 3, batches=0)), "are no range"),
        (entry(TOPIC_A, 0, stretch(0, 0, 3, byte_size=60)), "too few"),
    ],
)
def test_a_split_files_footer_that_contradicts_itself_is_neither_written_nor_read(
    partition: FooterPartition, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    footer = stamped_footer(partition)
    with pytest.raises(AssertionError, match=message):
        encode_footer(footer)
    with monkeypatch.context() as patch:
        patch.setattr("stratalog.block.footer._problem", lambda footer: None)
        data = encode_footer(footer)
    with pytest.raises(FooterDamagedError, match=message):
        decode_footer(data)


@pytest.mark.parametrize(
    "footer",
    [
        footer_of(entry(TOPIC_A, 0, stretch(0, 0, 3))),
        stamped_footer(entry(TOPIC_A, 0, batch(0))),
        stamped_footer(entry(TOPIC_A, 0, batch(0), stretch(100, 0, 3))),
    ],
)
def test_batches_and_ranges_are_never_mixed(footer: BlockFooter) -> None:
    with pytest.raises(AssertionError, match="some ranges only"):
        encode_footer(footer)
