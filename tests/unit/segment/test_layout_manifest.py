import json
from typing import Any

import pytest
from tests.unit.segment.layout_golden import MODES, Mode

from stratalog.segment.errors import ManifestDamagedError
from stratalog.segment.manifest import IndexRange, Manifest, parse_manifest
from stratalog.segment.model import IndexKind

NAME = "pfx/a/7/1.rsm-manifest"
SEALED = Mode(compress=False, encrypt=True)


def changed(path: str, value: object) -> str:
    fields: dict[str, Any] = json.loads(SEALED.manifest_text)
    *folders, last = path.split(".")
    place = fields
    for folder in folders:
        place = place[folder]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(fields)


def read(text: str | bytes) -> Manifest:
    return parse_manifest(text, NAME)


def test_the_manifest_of_the_plugin_says_how_to_read_the_segment() -> None:
    manifest = SEALED.manifest
    assert not manifest.compressed
    assert manifest.encryption is not None
    assert manifest.encryption.key_id == "key1"
    assert len(manifest.encryption.sealed_key) == 256
    assert len(manifest.encryption.aad) == 32
    assert manifest.indexes[IndexKind.LEADER_EPOCH] == IndexRange(2594, 43)
    assert manifest.indexes_bytes == len(SEALED.indexes)
    assert manifest.segment is not None
    assert manifest.segment["endOffset"] == 9453


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_manifest_may_come_as_text_or_as_bytes(mode: Mode) -> None:
    assert read(mode.manifest_text.encode()) == read(mode.manifest_text)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("version", 1),
        ("encryption", None),
        ("encryption", ...),
        ("remoteLogSegmentMetadata", ...),
        ("remoteLogSegmentMetadata", "anything"),
        ("remoteLogSegmentMetadata.more", {"any": "thing"}),
        ("segmentIndexes.transaction", None),
    ],
)
def test_what_the_plugin_accepts_is_accepted(path: str, value: object) -> None:
    assert read(changed(path, value)).chunks == SEALED.manifest.chunks


def test_a_segment_without_a_transaction_index_says_null() -> None:
    manifest = read(changed("segmentIndexes.transaction", None))
    assert IndexKind.TRANSACTION not in manifest.indexes
    assert '"transaction":null' in manifest.to_json()
    assert read(manifest.to_json()) == manifest


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("version", "2"),
        ("version", True),
        ("version", ...),
        ("unknown", 1),
        ("chunkIndex", ...),
        ("chunkIndex", None),
        ("chunkIndex.unknown", 1),
        ("chunkIndex.originalFileSize", ...),
        ("chunkIndex.originalChunkSize", 0),
        ("compression", ...),
        ("compression", 1),
        ("segmentIndexes", []),
        ("segmentIndexes.transaction", ...),
        ("segmentIndexes.transaction", 5),
        ("segmentIndexes.offset", None),
        ("segmentIndexes.offset", ...),
        ("segmentIndexes.unknown", None),
        ("segmentIndexes.offset.position", -1),
        ("segmentIndexes.offset.size", ...),
        ("segmentIndexes.offset.more", 1),
        ("encryption", "key1"),
        ("encryption.dataKey", "no colon"),
        ("encryption.dataKey", "key1:no base 64"),
        ("encryption.aad", ...),
        ("encryption.more", 1),
    ],
)
def test_what_the_plugin_refuses_names_the_object(path: str, value: object) -> None:
    with pytest.raises(ManifestDamagedError, match=NAME.replace(".", r"\.")):
        read(changed(path, value))


def test_a_refusal_names_the_field() -> None:
    with pytest.raises(ManifestDamagedError, match=r"manifest\.segmentIndexes\.offset\.size"):
        read(changed("segmentIndexes.offset.size", "12"))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"version":"1"}', "[" * 100_000])
def test_what_is_no_manifest_names_the_object(text: str) -> None:
    with pytest.raises(ManifestDamagedError, match=NAME.replace(".", r"\.")):
        read(text)


def test_bytes_that_are_no_text_name_the_object() -> None:
    with pytest.raises(ManifestDamagedError, match=NAME.replace(".", r"\.")):
        read(b"\xff\xfe{}")


def test_a_manifest_that_was_cut_anywhere_names_the_object() -> None:
    text = SEALED.manifest_text
    for length in range(0, len(text), 7):
        with pytest.raises(ManifestDamagedError, match=r"rsm-manifest"):
            read(text[:length])
