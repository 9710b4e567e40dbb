"""A footer survives the round trip, and no bytes make the decoder fail in an untyped way."""

import struct
from itertools import accumulate

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from stratalog.block.errors import FooterDamagedError
from stratalog.block.footer import (
    FOOTER_MAGIC,
    TRAILER_BYTES,
    BlockFooter,
    EarlierAnswer,
    FooterBatch,
    FooterPartition,
    FooterRange,
    FooterWriter,
    decode_footer,
    encode_footer,
    parse_trailer,
)
from stratalog.ids import BrokerId, ObjectId, Offset, PartitionIndex, TopicId, WriterTag

PLACES = st.tuples(st.uuids(), st.integers(0, 2**31 - 1))
TIMES = st.integers(-1, 2**63 - 1)


@st.composite
def stretches(draw: st.DrawFn, batches: list[FooterBatch]) -> list[FooterRange]:
    """The same bytes as ranges of a split file, with consecutive offsets."""
    offset = draw(st.integers(0, 2**40))
    ranges = []
    for batch in batches:
        last = offset + draw(st.integers(0, 2**31))
        ranges.append(
            FooterRange(
                byte_offset=batch.byte_offset,
                byte_size=batch.byte_size,
                record_count=batch.record_count,
                batch_count=draw(st.integers(1, 9)),
                base_offset=Offset(offset),
                last_offset=Offset(last),
                max_timestamp=draw(TIMES),
            )
        )
        offset = last + 1
    return ranges


FORMS = st.tuples(st.just(True), st.tuples(st.integers(0, 2**63 - 1))) | st.tuples(
    st.just(False), st.lists(st.integers(-1, 2**63 - 1), max_size=3).map(tuple)
)
NUMBERS = st.integers(0, 2**64 - 1)
WRITERS = st.none() | st.tuples(st.integers(1, 2**40 - 1), NUMBERS, NUMBERS)
SEQUENCES = st.lists(st.integers(0, 2**64 - 1), max_size=2)


def earlier_answers(draw: st.DrawFn, writer: FooterWriter) -> list[EarlierAnswer]:
    sequences = {each % writer.sequence for each in draw(SEQUENCES) if writer.sequence}
    drawn = [(sequence, *draw(FORMS)) for sequence in sorted(sequences)]
    return [
        EarlierAnswer(sequence=sequence, is_run=is_run, offsets=tuple(map(Offset, offsets)))
        for sequence, is_run, offsets in drawn
    ]


@st.composite
def footers(draw: st.DrawFn) -> BlockFooter:
    places = sorted(draw(st.sets(PLACES, max_size=5)))
    counts = draw(st.lists(st.integers(1, 4), min_size=len(places), max_size=len(places)))
    total = sum(counts)
    sizes = draw(st.lists(st.integers(61, 2**32 - 1), min_size=total, max_size=total))
    gaps = draw(st.lists(st.integers(0, 9), min_size=total, max_size=total))
    ends = accumulate(size + gap for size, gap in zip(sizes, gaps, strict=True))
    batches = [
        FooterBatch(
            byte_offset=end - size,
            byte_size=size,
            record_count=draw(st.integers(0, 9)),
            max_timestamp=draw(TIMES),
        )
        for end, size in zip(ends, sizes, strict=True)
    ]
    partitions = []
    stamped = draw(st.booleans())
    numbers = None if stamped else draw(WRITERS)
    writer = numbers and FooterWriter(
        tag=WriterTag(numbers[0]), sequence=numbers[1], commits=numbers[2]
    )
    for (topic_id, partition), count in zip(places, counts, strict=True):
        partitions.append(
            FooterPartition(
                topic_id=TopicId(topic_id),
                topic_name=draw(st.text(max_size=8)),
                partition=PartitionIndex(partition),
                batches=tuple(draw(stretches(batches[:count])) if stamped else batches[:count]),
                answers=tuple(earlier_answers(draw, writer) if writer else ()),
            )
        )
        del batches[:count]
    return BlockFooter(
        block_id=ObjectId(draw(st.uuids())),
        broker_id=BrokerId(draw(st.integers(-(2**31), 2**31 - 1))),
        created_ms=draw(st.integers(-(2**63), 2**63 - 1)),
        partitions=tuple(partitions),
        stamped=stamped,
        writer=writer,
    )


def decodes_or_is_damaged(data: bytes) -> bool:
    try:
        decode_footer(data)
    except FooterDamagedError:
        return False
    return True


@given(footers())
def test_every_footer_survives_the_round_trip(footer: BlockFooter) -> None:
    data = encode_footer(footer)
    assert decode_footer(data) == footer
    assert parse_trailer(data[-TRAILER_BYTES:])[0] == len(data) - TRAILER_BYTES


@given(footers(), st.data())
def test_every_flipped_bit_is_noticed(footer: BlockFooter, data: st.DataObject) -> None:
    encoded = bytearray(encode_footer(footer))
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] ^= 1 << data.draw(st.integers(0, 7))
    assert not decodes_or_is_damaged(bytes(encoded))


@given(footers(), st.data())
def test_every_cut_is_noticed(footer: BlockFooter, data: st.DataObject) -> None:
    encoded = encode_footer(footer)
    assert not decodes_or_is_damaged(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_damaged(data: bytes) -> None:
    decodes_or_is_damaged(data)


@given(footers(), st.data())
def test_any_payload_with_a_good_crc_decodes_or_is_damaged(
    footer: BlockFooter, data: st.DataObject
) -> None:
    payload = bytearray(encode_footer(footer)[:-TRAILER_BYTES])
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    trailer = struct.pack(">II8s", len(payload), crc32c(bytes(payload)), FOOTER_MAGIC)
    decodes_or_is_damaged(bytes(payload) + trailer)
