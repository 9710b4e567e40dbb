"""Any log, in any pieces, through any chunk size and mode, comes back; any damage is noticed."""

from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from stratalog.control.segments.model import EpochStart, SegmentState
from stratalog.errors import DamagedError
from stratalog.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, SegmentId, TopicId
from stratalog.segment.chunk_encoding import ChunkEncoder, decode_chunk
from stratalog.segment.chunk_index import chunks_between
from stratalog.segment.chunk_sizes import pack_sizes, unpack_sizes
from stratalog.segment.cipher import SegmentCipher
from stratalog.segment.epoch_lineage import lineage
from stratalog.segment.errors import LineageGapError
from stratalog.segment.key_ring import EncryptionHeader
from stratalog.segment.keys import SUFFIXES, parse_segment_key, segment_key_base
from stratalog.segment.manifest import IndexRange, Manifest, parse_manifest
from stratalog.segment.model import IndexKind
from stratalog.segment.remote_log_metadata import (
    NamedPartition,
    SegmentAdded,
    decode_record,
    encode_record,
)
from stratalog.segment.seek_table import decode_seek_table

CIPHER = SegmentCipher(bytes(32), b"aad")
HEADER = EncryptionHeader(key_id="k", sealed_key=b"sealed", aad=b"aad")
PLACES = {kind: IndexRange(7, 3) for kind in IndexKind}

pieces = st.lists(st.binary(max_size=60), min_size=1, max_size=12).filter(any)
uuids = st.uuids()
int32s = st.integers(min_value=0, max_value=2**31 - 1)
int64s = st.integers(min_value=0, max_value=2**63 - 1)


def lay_out(
    log: list[bytes], chunk_bytes: int, compress: bool, encrypt: bool
) -> tuple[bytes, Manifest]:
    encoder = ChunkEncoder(chunk_bytes, compress, CIPHER if encrypt else None)
    stored = [encoded for piece in log for encoded in encoder.push(piece)]
    end = encoder.finish()
    manifest = Manifest(
        chunks=end.chunks,
        indexes=PLACES,
        compressed=compress,
        encryption=HEADER if encrypt else None,
    )
    assert (len(end.seek_table) > 0) == (compress and not encrypt)
    if end.seek_table:
        entries = decode_seek_table(end.seek_table, "log")
        assert sum(entry.stored_bytes for entry in entries) == end.chunks.stored_bytes
    return b"".join([*stored, *end.parts]), manifest


def read_back(stored: bytes, manifest: Manifest, start: int, end: int) -> bytes:
    wanted = chunks_between(manifest.chunks, start, end)
    decoded = []
    for chunk in wanted:
        place = manifest.chunks.stored_range(chunk)
        piece = stored[place.start : place.end]
        decoded.append(bytes(decode_chunk(piece, chunk, manifest, CIPHER, "the.log")))
    first = manifest.chunks.original_range(wanted[0]).start if wanted else start
    return b"".join(decoded)[start - first : end - first]


@given(pieces, st.integers(1, 200), st.booleans(), st.booleans(), st.data())
def test_any_range_of_any_log_comes_back(
    log: list[bytes], chunk_bytes: int, compress: bool, encrypt: bool, data: st.DataObject
) -> None:
    whole = b"".join(log)
    stored, manifest = lay_out(log, chunk_bytes, compress, encrypt)
    manifest = parse_manifest(manifest.to_json(), "the.rsm-manifest")
    assert len(stored) == manifest.chunks.stored_bytes
    assert read_back(stored, manifest, 0, len(whole)) == whole
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole) + 10))
    assert read_back(stored, manifest, start, end) == whole[start:end]


@given(pieces, st.integers(1, 200), st.booleans(), st.data())
def test_any_flipped_bit_of_a_sealed_log_is_noticed_and_named(
    log: list[bytes], chunk_bytes: int, compress: bool, data: st.DataObject
) -> None:
    stored, manifest = lay_out(log, chunk_bytes, compress, encrypt=True)
    damaged = bytearray(stored)
    damaged[data.draw(st.integers(0, len(stored) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        read_back(bytes(damaged), manifest, 0, len(b"".join(log)))
    except DamagedError as error:
        assert "the.log, chunk " in str(error)  # noqa: PT017
    else:
        raise AssertionError("the damage went unnoticed")


@given(pieces, st.integers(1, 200), st.booleans(), st.booleans(), st.data())
def test_a_damaged_manifest_is_named_or_still_means_the_same_sizes(
    log: list[bytes], chunk_bytes: int, compress: bool, encrypt: bool, data: st.DataObject
) -> None:
    _, manifest = lay_out(log, chunk_bytes, compress, encrypt)
    text = bytearray(manifest.to_json().encode())
    text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    try:
        parsed = parse_manifest(text, "the.rsm-manifest")
    except DamagedError as error:
        assert str(error).startswith("the.rsm-manifest: ")  # noqa: PT017
    else:
        for chunk in range(min(parsed.chunks.count, 100)):
            assert parsed.chunks.stored_range(chunk).end <= parsed.chunks.stored_bytes


@given(st.lists(st.integers(1, 2**31 - 1), max_size=40))
def test_chunk_sizes_come_back(sizes: list[int]) -> None:
    assert unpack_sizes(pack_sizes(sizes)) == tuple(sizes)


@given(
    st.from_regex(r"[A-Za-z0-9._-]{1,60}", fullmatch=True),
    uuids,
    int32s,
    int64s,
    uuids,
    st.sampled_from(SUFFIXES),
)
def test_keys_say_what_they_were_made_of(
    topic: str, topic_id: TopicId, partition: int, base: int, segment_id: SegmentId, suffix: str
) -> None:
    key = segment_key_base(
        "p/", topic, topic_id, PartitionIndex(partition), Offset(base), segment_id
    )
    parsed = parse_segment_key(key + suffix, "p/")
    assert parsed is not None
    assert (parsed.topic_name, parsed.topic_id) == (topic, topic_id)
    assert (parsed.partition, parsed.base_offset) == (partition, base)
    assert (parsed.segment_id, parsed.suffix) == (segment_id, suffix)


added = st.builds(
    SegmentAdded,
    partition=st.builds(NamedPartition, st.text(max_size=20), uuids, int32s.map(PartitionIndex)),
    segment_id=uuids,
    base_offset=st.integers(0, 2**62).map(Offset),
    last_offset=st.integers(2**62, 2**63 - 1).map(Offset),
    broker_id=st.integers(-1, 2**31 - 1).map(BrokerId),
    max_timestamp=st.integers(-1, 2**63 - 1),
    event_ms=int64s,
    leader_epochs=st.dictionaries(int32s, int64s, min_size=1, max_size=4).map(
        lambda epochs: tuple(
            EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in sorted(epochs.items())
        )
    ),
    size_bytes=int32s,
    custom_metadata=st.none() | st.binary(max_size=200),
    state=st.sampled_from(SegmentState),
    txn_index_empty=st.booleans(),
)


@given(added)
def test_records_come_back(record: SegmentAdded) -> None:
    assert decode_record(encode_record(record)) == record


@given(added, st.data())
def test_a_damaged_record_is_refused_or_is_another_record(
    record: SegmentAdded, data: st.DataObject
) -> None:
    value = bytearray(encode_record(record))
    value[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        other = decode_record(value)
    except DamagedError:
        return
    # An unknown tag, or another spelling of a number or flag, may mean the same.
    assert decode_record(encode_record(other)) == other


@given(st.binary(max_size=100))
def test_no_bytes_at_all_make_the_decoder_stumble(value: bytes) -> None:
    with suppress(DamagedError):
        decode_record(b"\x01" + value)


intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 15)), min_size=1, max_size=12)


@given(intervals)
@example([(0, 9), (8, 6), (10, 10)])
def test_a_chain_holds_all_offsets_that_any_segment_holds(
    drawn: list[tuple[int, int]],
) -> None:
    segments = [
        replace(
            _TEMPLATE,
            base_offset=Offset(base),
            last_offset=Offset(base + length),
            leader_epochs=(EpochStart(LeaderEpoch(0), Offset(base)),),
        )
        for base, length in drawn
    ]
    held = {offset for base, length in drawn for offset in range(base, base + length + 1)}
    missing = set(range(min(held), max(held) + 1)) - held
    try:
        chain = lineage(segments, [EpochStart(LeaderEpoch(0), Offset(0))])
    except LineageGapError as error:
        assert {o for gap in error.gaps for o in range(*gap)} == missing  # noqa: PT017
        return
    assert not missing
    covered = {o for s in chain for o in range(s.base_offset, s.last_offset + 1)}
    assert covered == held
    for one, following in pairwise(chain):
        assert one.base_offset < following.base_offset <= one.last_offset + 1
        assert one.last_offset < following.last_offset


_TEMPLATE = SegmentAdded(
    partition=NamedPartition("t", TopicId(UUID(int=1)), PartitionIndex(0)),
    segment_id=SegmentId(UUID(int=2)),
    base_offset=Offset(0),
    last_offset=Offset(0),
    broker_id=BrokerId(0),
    max_timestamp=0,
    event_ms=0,
    leader_epochs=(),
    size_bytes=1,
)
