"""A damaged segment fails alone, with an error that names it, after its good batches."""

import re
from dataclasses import replace

import pytest
from tests.unit.segment.reading import KEYS, MODES, Shelf, offsets, read
from tests.unit.segment.runs import batch

from stratalog.clock import SystemClock
from stratalog.control.segments.model import Segment
from stratalog.errors import CallError, DamagedError, StratalogError
from stratalog.ids import Offset
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.open import open_store
from stratalog.pieces import PiecesWanted
from stratalog.segment.cipher import SEAL_BYTES
from stratalog.segment.errors import (
    ChunkDamagedError,
    DataKeyError,
    IndexDamagedError,
    IndexObjectDamagedError,
    KeyMissingError,
    LogDamagedError,
    ManifestDamagedError,
    OldRecordFormatError,
    SegmentMismatchError,
)
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.manifest import parse_manifest
from stratalog.segment.model import IndexKind
from stratalog.segment.reader import SegmentReader
from stratalog.segment.stores import SegmentStores
from stratalog.settings import RemoteSettings

SIZE = len(batch(1, value_bytes=1000))
POSITION_AT = 8 * 4 + 7
"""The last byte of the position to which the offset index sends a reader of offset 21."""
ENCODED = [mode for mode in MODES if mode != "plain"]


async def shelf_of(mode: str = "plain", *, batches: int = 100) -> tuple[Shelf, Segment]:
    shelf = Shelf()
    segment = await shelf.add([batch(1, value_bytes=1000) for _ in range(batches)], MODES[mode])
    return shelf, segment


def with_manifest(segment: Segment, old: str, new: str) -> Segment:
    assert segment.uploaded is not None
    text, count = re.subn(old, new, segment.uploaded.manifest, count=1)
    assert count
    return replace(segment, uploaded=replace(segment.uploaded, manifest=text))


async def error_of(shelf: Shelf, segment: Segment, offset: int = 50) -> StratalogError:
    answer = await read(shelf.reader(), [segment], offset)
    assert not answer.parts
    assert (answer.next_offset, answer.ended) == (offset, False)
    assert answer.error is not None
    return answer.error


async def test_a_damaged_batch_ends_the_answer_after_the_good_ones() -> None:
    shelf, segment = await shelf_of()
    await shelf.damage(f"{segment.key_base}.log", 60 * SIZE + 100)
    answer = await read(shelf.reader(), [segment], 50)
    assert offsets(answer) == list(range(50, 60))
    assert (answer.next_offset, answer.ended) == (60, False)
    assert isinstance(answer.error, LogDamagedError)
    error = await error_of(shelf, segment, 60)
    assert f"object {segment.key_base}.log, byte {60 * SIZE}" in str(error)
    assert "offset 60" in str(error)


async def test_an_answer_that_is_full_before_the_damage_knows_nothing_of_it() -> None:
    shelf, segment = await shelf_of()
    await shelf.damage(f"{segment.key_base}.log", 52 * SIZE + 100)
    answer = await read(shelf.reader(), [segment], 0, max_bytes=52 * SIZE + 500)
    assert (len(offsets(answer)), answer.error) == (52, None)


async def test_records_after_a_damaged_batch_can_be_read() -> None:
    shelf, segment = await shelf_of()
    await shelf.damage(f"{segment.key_base}.log", 60 * SIZE + 100)
    answer = await read(shelf.reader(), [segment], 61)
    assert (offsets(answer), answer.error) == (list(range(61, 100)), None)


@pytest.mark.parametrize("mode", ENCODED)
async def test_a_damaged_chunk_ends_the_answer_before_its_batches(mode: str) -> None:
    shelf, segment = await shelf_of(mode)
    log = await shelf.store.head(f"{segment.key_base}.log")
    await shelf.damage(f"{segment.key_base}.log", log.size_bytes // 2)
    answer = await read(shelf.reader(), [segment], 10)
    assert offsets(answer)
    assert offsets(answer) == list(range(10, answer.next_offset))
    assert isinstance(answer.error, ChunkDamagedError)
    assert f"object {segment.key_base}.log, chunk " in str(answer.error)


@pytest.mark.parametrize("mode", MODES)
async def test_of_a_log_that_is_cut_short_the_first_part_is_read(mode: str) -> None:
    shelf, segment = await shelf_of(mode)
    log = await shelf.store.head(f"{segment.key_base}.log")
    await shelf.damage(f"{segment.key_base}.log", log.size_bytes // 2, cut=True)
    reader = shelf.reader()
    offset, error = 0, None
    while error is None:
        answer = await read(reader, [segment], offset)
        assert offsets(answer) == list(range(offset, answer.next_offset))
        offset, error = answer.next_offset, answer.error
    assert offset >= 14
    assert isinstance(error, DamagedError)
    assert f"{segment.key_base}.log" in str(error)
    await reader.close()


@pytest.mark.parametrize("kind", [IndexKind.PRODUCER_SNAPSHOT, IndexKind.LEADER_EPOCH])
async def test_a_damaged_snapshot_or_checkpoint_is_named_with_its_object(kind: IndexKind) -> None:
    shelf, segment = await shelf_of()
    assert segment.uploaded is not None
    place = parse_manifest(segment.uploaded.manifest, "").indexes[kind]
    await shelf.damage(f"{segment.key_base}.indexes", place.position)
    with pytest.raises(IndexDamagedError, match=f"object {re.escape(segment.key_base)}.indexes: "):
        await shelf.reader().index(segment, kind)


async def test_a_log_that_is_gone_is_looked_for_again_by_the_caller() -> None:
    shelf, segment = await shelf_of()
    await shelf.store.delete([f"{segment.key_base}.log"])
    error = await error_of(shelf, segment)
    assert isinstance(error, ObjectNotFoundError)
    assert f"{segment.key_base}.log" in str(error)


async def test_a_damaged_index_is_named() -> None:
    shelf, segment = await shelf_of()
    await shelf.damage(f"{segment.key_base}.indexes", 16)
    error = await error_of(shelf, segment)
    assert isinstance(error, IndexDamagedError)
    assert f"object {segment.key_base}.indexes: offset index" in str(error)


async def test_an_index_that_points_beside_the_batches_is_named() -> None:
    shelf, segment = await shelf_of()
    key = f"{segment.key_base}.indexes"
    data = bytearray((await shelf.store.get(key)).data)
    for at in range(7, 8 * 12, 8):
        data[at] ^= 0x03
    await shelf.store.put(key, [data])
    error = await error_of(shelf, segment, 30)
    assert isinstance(error, LogDamagedError)
    assert "where its offset index points" in str(error)


async def put_back(shelf: Shelf, key: str, *, damaged_at: int) -> None:
    """Undo a damage, as a repair or a restored backup would."""
    await shelf.damage(key, damaged_at)


@pytest.mark.parametrize("mode", ["plain", "zstd"])
async def test_an_index_that_was_repaired_is_read_without_a_restart(mode: str) -> None:
    """The repaired one has the size of the damaged one, and so the manifest is the same."""
    shelf, segment = await shelf_of(mode)
    key = f"{segment.key_base}.indexes"
    reader = shelf.reader()
    await shelf.damage(key, POSITION_AT)
    answer = await read(reader, [segment], 21)
    assert isinstance(answer.error, LogDamagedError)
    await put_back(shelf, key, damaged_at=POSITION_AT)
    answer = await read(reader, [segment], 21)
    assert (answer.error, offsets(answer)) == (None, list(range(21, 100)))


@pytest.mark.parametrize("mode", MODES)
async def test_a_log_that_was_repaired_is_read_without_a_restart(mode: str) -> None:
    shelf, segment = await shelf_of(mode)
    key = f"{segment.key_base}.log"
    reader = shelf.reader()
    await shelf.damage(key, 100)
    # The second one reads on from where the first one ended, if it got anywhere.
    for offset in (0, 0):
        answer = await read(reader, [segment], offset)
        assert isinstance(answer.error, DamagedError)
    await put_back(shelf, key, damaged_at=100)
    answer = await read(reader, [segment], 0)
    assert (answer.error, offsets(answer)) == (None, list(range(100)))


async def test_damage_that_was_read_ahead_is_not_kept() -> None:
    shelf, segment = await shelf_of()
    key, reader = f"{segment.key_base}.log", shelf.reader()
    await shelf.damage(key, 60 * SIZE + 100)
    for offset in (0, 10):
        assert offsets(await read(reader, [segment], offset, 10 * SIZE))[0] == offset
    answer = await read(reader, [segment], 20)
    assert offsets(answer)[-1] == 59
    await put_back(shelf, key, damaged_at=60 * SIZE + 100)
    assert offsets(await read(reader, [segment], 60)) == list(range(60, 100))


async def test_a_search_by_time_does_not_keep_damage_either() -> None:
    shelf, segment = await shelf_of("zstd")
    key, reader = f"{segment.key_base}.indexes", shelf.reader()
    await shelf.damage(key, POSITION_AT)
    with pytest.raises(LogDamagedError):
        await reader.first_at_time(segment, 0, Offset(21))
    await put_back(shelf, key, damaged_at=POSITION_AT)
    found = await reader.first_at_time(segment, 0, Offset(21))
    assert found is not None
    assert found.offset == 21


async def test_an_index_that_leads_beyond_the_offset_is_never_taken_for_a_gap() -> None:
    shelf, segment = await shelf_of()
    key = f"{segment.key_base}.indexes"
    data = bytearray((await shelf.store.get(key)).data)
    for at in range(4, 8 * 12, 8):
        position = int.from_bytes(data[at : at + 4])
        data[at : at + 4] = (position + SIZE).to_bytes(4)
    await shelf.store.put(key, [data])
    indexed = 8
    error = await error_of(shelf, replace(segment, owned=False), indexed)
    assert isinstance(error, LogDamagedError)
    assert "where its offset index points" in str(error)


@pytest.mark.parametrize("mode", ["aes", "both"])
async def test_a_damaged_encrypted_index_is_named(mode: str) -> None:
    shelf, segment = await shelf_of(mode)
    await shelf.damage(f"{segment.key_base}.indexes", 16)
    error = await error_of(shelf, segment)
    assert isinstance(error, IndexObjectDamagedError)
    assert f"object {segment.key_base}.indexes" in str(error)


async def test_a_damaged_manifest_is_named() -> None:
    shelf, segment = await shelf_of()
    error = await error_of(shelf, with_manifest(segment, "chunkIndex", "chunkInde"))
    assert isinstance(error, ManifestDamagedError)
    assert f"{segment.key_base}.rsm-manifest" in str(error)


async def test_a_manifest_of_another_log_is_noticed() -> None:
    shelf, segment = await shelf_of()
    other = replace(segment, size_bytes=segment.size_bytes + 1)
    error = await error_of(shelf, other)
    assert isinstance(error, SegmentMismatchError)


async def test_a_damaged_data_key_is_told_from_a_missing_key_pair() -> None:
    shelf, segment = await shelf_of("aes")
    damaged = with_manifest(segment, 'dataKey":"key1:..', 'dataKey":"key1:AA')
    assert isinstance(await error_of(shelf, damaged), DataKeyError)
    missing = with_manifest(segment, "key1:", "key2:")
    error = await error_of(shelf, missing)
    assert isinstance(error, KeyMissingError)
    assert "key2" in str(error)


async def test_a_reader_without_keys_reads_what_is_not_encrypted() -> None:
    shelf, segment = await shelf_of()
    stores = SegmentStores(shelf.store, lambda _: shelf.store)
    reader = SegmentReader(stores=stores, keys=KeyRing(), settings=RemoteSettings())
    assert offsets(await read(reader, [segment], 99)) == [99]
    assert KEYS.can_open("key1")


async def test_a_partition_that_fails_fails_alone() -> None:
    shelf, segment = await shelf_of()
    other = await shelf.add([batch(1, value_bytes=1000) for _ in range(10)])
    bad = with_manifest(segment, "chunkIndex", "chunkInde")
    wanted = [
        PiecesWanted(offset=Offset(5), max_bytes=SIZE, pieces=[bad]),
        PiecesWanted(offset=Offset(105), max_bytes=SIZE, pieces=[other]),
    ]
    failed, fine = await shelf.reader().read(wanted)
    assert isinstance(failed.error, ManifestDamagedError)
    assert (offsets(fine), fine.error) == ([105], None)


async def test_damage_in_the_next_segment_ends_the_answer_before_it() -> None:
    shelf, _ = await shelf_of()
    await shelf.add([batch(1, value_bytes=1000) for _ in range(10)])
    await shelf.damage(f"{shelf.segments[1].key_base}.log", 10)
    reader = shelf.reader()
    answer = await read(reader, shelf.segments, 90)
    assert offsets(answer) == list(range(90, 100))
    assert (answer.next_offset, answer.ended) == (100, False)
    assert isinstance(answer.error, DamagedError)


def rewritten(log: bytes, at: int, field: int, data: bytes) -> bytes:
    start = at * SIZE + field
    return log[:start] + data + log[start + len(data) :]


@pytest.mark.parametrize(
    ("at", "field", "data", "reason"),
    [
        (10, 0, (11).to_bytes(8), "says offset 11, not 10"),
        (10, 0, (9).to_bytes(8), "says offset 9, not 10"),
        (10, 8, (48).to_bytes(4), "a batch of 60 bytes"),
        (10, 8, (2**31 - 1).to_bytes(4), "a batch of 2147483659 bytes"),
        (10, 16, b"\x03", "magic 3"),
        (10, 16, b"\x01", "magic 1"),
        (10, 23, (90).to_bytes(4), "a batch of offsets 10 to 100"),
        (10, 23, b"\xff\xff\xff\xff", "a batch of offsets 10 to 9"),
    ],
)
async def test_a_header_that_makes_no_sense_is_damage(
    at: int, field: int, data: bytes, reason: str
) -> None:
    shelf, segment = await shelf_of()
    await shelf.store.put(f"{segment.key_base}.log", [rewritten(shelf.logs[0], at, field, data)])
    answer = await read(shelf.reader(), [segment], 0)
    assert offsets(answer) == list(range(10))
    assert reason in str(answer.error)


async def test_a_log_that_ends_before_its_segment_is_damage() -> None:
    shelf, segment = await shelf_of()
    longer = replace(segment, last_offset=Offset(120))
    answer = await read(shelf.reader(), [longer], 0)
    assert (len(offsets(answer)), answer.ended) == (100, False)
    assert "the log ends with offset 99, not 120" in str(answer.error)
    adopted = replace(longer, owned=False)
    answer = await read(shelf.reader(), [adopted], 0)
    assert (answer.next_offset, answer.ended, answer.error) == (121, True, None)


async def test_a_log_that_ends_inside_a_batch_is_damage() -> None:
    shelf, segment = await shelf_of()
    data = rewritten(shelf.logs[0], 99, 8, (SIZE - 12 - 30).to_bytes(4))
    await shelf.store.put(f"{segment.key_base}.log", [data])
    answer = await read(shelf.reader(), [replace(segment, owned=False)], 95)
    assert isinstance(answer.error, LogDamagedError)


@pytest.mark.parametrize("magic", [0, 1])
async def test_records_of_old_formats_are_refused_with_a_reason(magic: int) -> None:
    shelf, segment = await shelf_of()
    data = rewritten(shelf.logs[0], 0, 16, bytes([magic]))
    await shelf.store.put(f"{segment.key_base}.log", [data])
    error = await error_of(shelf, replace(segment, owned=False), 0)
    assert isinstance(error, OldRecordFormatError)
    assert f"message format {magic}" in str(error)


async def test_encrypted_chunks_that_changed_places_are_found_out() -> None:
    """They open, because all chunks of a segment share a key and the additional data."""
    shelf, segment = await shelf_of("aes")
    key = f"{segment.key_base}.log"
    data = bytes((await shelf.store.get(key)).data)
    size = 16_000 + SEAL_BYTES
    await shelf.store.put(key, [data[size : 2 * size], data[:size], data[2 * size :]])
    for offset in (0, 5, 10, 20, 25):
        assert isinstance(await error_of(shelf, segment, offset), LogDamagedError)


async def gapped(owned: bool) -> tuple[Shelf, Segment]:
    """Batches 20 to 29 and the last ten of 0 to 99 are not there."""
    shelf, segment = await shelf_of()
    (log,) = shelf.logs
    data = log[: 20 * SIZE] + log[30 * SIZE : 90 * SIZE]
    await shelf.store.put(f"{segment.key_base}.log", [data])
    assert segment.uploaded is not None
    uploaded = segment.uploaded.manifest
    # A segment that Kafka compacted has indexes of its own. Here an empty one will do.
    uploaded = re.sub(r'"offset":{[^}]*}', '"offset":{"position":0,"size":0}', uploaded)
    uploaded = re.sub(r'FileSize":\d+', f'FileSize":{len(data)}', uploaded)
    uploaded = re.sub(
        r'finalTransformedChunkSize":\d+',
        f'finalTransformedChunkSize":{len(data) % 16_000}',
        uploaded,
    )
    return shelf, replace(
        segment,
        size_bytes=len(data),
        owned=owned,
        uploaded=replace(segment.uploaded, manifest=uploaded),
    )


async def test_a_gap_in_an_adopted_segment_is_answered_from_the_next_batch() -> None:
    shelf, segment = await gapped(owned=False)
    reader = shelf.reader()
    answer = await read(reader, [segment], 25, max_bytes=2 * SIZE)
    assert (offsets(answer)[0], answer.error) == (30, None)
    answer = await read(reader, [segment], 19)
    assert offsets(answer) == [19, *range(30, 90)]
    assert (answer.next_offset, answer.ended) == (100, True)


async def test_a_gap_at_the_end_of_an_adopted_segment_leads_to_the_next_one() -> None:
    shelf, segment = await gapped(owned=False)
    answer = await read(shelf.reader(), [segment], 95, max_bytes=1)
    assert (answer.parts, answer.next_offset, answer.ended, answer.error) == ([], 100, True, None)
    following = await shelf.add([batch(2), batch(2)])
    answer = await read(shelf.reader(), [segment, following], 95, max_bytes=1)
    assert (offsets(answer), answer.next_offset) == ([100, 101], 102)


async def test_a_gap_in_a_segment_of_our_own_is_damage() -> None:
    shelf, segment = await gapped(owned=True)
    answer = await read(shelf.reader(), [segment], 10)
    assert offsets(answer) == list(range(10, 20))
    assert "says offset 30, not 20" in str(answer.error)
    taken_over = replace(segment, store_url="s3://theirs")
    answer = await read(shelf.reader(), [taken_over], 10)
    assert answer.error is None


async def test_a_segment_that_was_adopted_anew_is_read_where_it_lies_now() -> None:
    """It has the same id and the same manifest, wherever its objects were brought."""
    shelf, segment = await shelf_of()
    old = open_store("memory:", clock=SystemClock())
    stores = SegmentStores(shelf.store, {"s3://old": old, "s3://new": shelf.store}.__getitem__)
    reader = SegmentReader(stores=stores, keys=KEYS, settings=RemoteSettings())
    answer = await read(reader, [replace(segment, store_url="s3://old")], 0)
    assert isinstance(answer.error, ObjectNotFoundError)
    answer = await read(reader, [replace(segment, store_url="s3://new")], 0)
    assert (answer.error, offsets(answer)) == (None, list(range(100)))
    elsewhere = replace(segment, store_url="s3://new", key_base="elsewhere")
    assert isinstance((await read(reader, [elsewhere], 50)).error, ObjectNotFoundError)


async def test_a_store_that_cannot_be_opened_fails_the_read() -> None:
    class NoStoreError(CallError):
        pass

    def refuse(url: str) -> None:
        raise NoStoreError(url)

    shelf, segment = await shelf_of()
    stores = SegmentStores(shelf.store, refuse)  # type: ignore[arg-type]
    reader = SegmentReader(stores=stores, keys=KEYS, settings=RemoteSettings())
    answer = await read(reader, [replace(segment, store_url="s3://gone")], 0)
    assert isinstance(answer.error, NoStoreError)
