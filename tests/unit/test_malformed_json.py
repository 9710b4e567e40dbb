"""Documents that are not the expected JSON are damage in each of its readers."""

from collections.abc import Callable

import pytest

from stratalog.backup.manifest import parse_manifest
from stratalog.errors import DamagedError
from stratalog.groups.classic.codec import decode as decode_classic_group
from stratalog.groups.consumer.codec import decode_state as decode_consumer_group
from stratalog.opening.marker import parse_marker


@pytest.mark.parametrize(
    "read",
    [
        decode_classic_group,
        decode_consumer_group,
        parse_marker,
        lambda data: parse_manifest(data, "backups/x.json"),
    ],
)
@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b"{" * 100_000,
        b"7",
        b"[]",
        b"null",
        b'{"format": 1, "name": "", "created_ms": 1e999, "generation": 1e999, "newest_object": 0}',
        b"9" * 10_000,
        b"\xff",
    ],
    ids=["deep lists", "deep objects", "number", "list", "null", "infinity", "long", "no text"],
)
def test_a_document_that_cannot_be_read_is_damage(
    read: Callable[[bytes], object], data: bytes
) -> None:
    with pytest.raises(DamagedError):
        read(data)
