import struct

import pytest
from crc32c import crc32c

from stratalog.ids import Offset, ProducerId
from stratalog.segment.errors import SnapshotDamagedError
from stratalog.segment.producer_snapshot import ProducerEntry, decode_snapshot, encode_snapshot

EMPTY = bytes.fromhex("000148674bc700000000")
ENTRIES = [
    ProducerEntry(ProducerId(2**62), 32767, 9, Offset(120), 4, 1_700_000_000_000, 5, Offset(77)),
    ProducerEntry(ProducerId(3)),
]


def with_crc(version: int, body: bytes) -> bytes:
    return struct.pack(">hI", version, crc32c(body)) + body


def test_an_empty_snapshot_is_kafkas() -> None:
    assert encode_snapshot([]) == EMPTY
    assert decode_snapshot(EMPTY) == []


def test_entries_are_read_as_they_were_written() -> None:
    data = encode_snapshot(ENTRIES)
    assert len(data) == 10 + 2 * 46
    assert decode_snapshot(memoryview(data)) == ENTRIES


def test_an_entry_without_batches_says_so_as_kafka_does() -> None:
    fields = struct.unpack(">qhiqiqiq", encode_snapshot([ENTRIES[1]])[10:])
    assert fields == (3, -1, -1, -1, 0, -1, -1, -1)


@pytest.mark.parametrize("version", [0, 2])
def test_another_version_is_refused(version: int) -> None:
    with pytest.raises(SnapshotDamagedError, match=f"version is {version}"):
        decode_snapshot(with_crc(version, bytes(4)))


@pytest.mark.parametrize("at", [2, 5, 6, 9, 10, 101])
def test_a_changed_byte_is_found_by_the_crc(at: int) -> None:
    data = bytearray(encode_snapshot(ENTRIES))
    data[at] ^= 1
    with pytest.raises(SnapshotDamagedError, match="CRC"):
        decode_snapshot(data)


@pytest.mark.parametrize("size", [0, 9])
def test_too_few_bytes_are_damage(size: int) -> None:
    with pytest.raises(SnapshotDamagedError, match=f"{size} bytes are too few"):
        decode_snapshot(EMPTY[:size])


@pytest.mark.parametrize("body_bytes", [45, 47, 92])
def test_a_count_that_does_not_fit_the_length_is_damage(body_bytes: int) -> None:
    body = struct.pack(">i", 1) + bytes(body_bytes)
    with pytest.raises(SnapshotDamagedError, match="1 entries do not take"):
        decode_snapshot(with_crc(1, body))
