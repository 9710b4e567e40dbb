import pytest

from stratalog.segment.custom_metadata import (
    CustomMetadata,
    decode_custom_metadata,
    encode_custom_metadata,
)
from stratalog.segment.errors import CustomMetadataDamagedError


def test_the_size_is_written_as_the_plugin_writes_it() -> None:
    metadata = CustomMetadata(remote_bytes=738716 + 2593 + 784)
    assert encode_custom_metadata(metadata).hex() == "0100039acb5a"


@pytest.mark.parametrize(
    "metadata",
    [
        CustomMetadata(),
        CustomMetadata(remote_bytes=0),
        CustomMetadata(object_prefix=""),
        CustomMetadata(object_key="topic-x/7/0"),
        CustomMetadata(remote_bytes=2**40, object_prefix="pfx/", object_key="a/b"),
    ],
)
def test_metadata_comes_back_as_it_was_written(metadata: CustomMetadata) -> None:
    assert decode_custom_metadata(encode_custom_metadata(metadata), "s") == metadata


def test_no_field_at_all_takes_no_bytes() -> None:
    assert encode_custom_metadata(CustomMetadata()) == b""


def test_a_field_that_is_unknown_is_ignored() -> None:
    data = bytes.fromhex("0200039acb5a090178")
    assert decode_custom_metadata(data, "s") == CustomMetadata(remote_bytes=742093)


@pytest.mark.parametrize(
    "data",
    [
        "01",
        "0100039acb",
        "0100039acb5a00",
        "0100049acb5a00",
        "010100",
        "01010400",
        "02010161000161",
    ],
)
def test_damage_names_the_segment(data: str) -> None:
    with pytest.raises(CustomMetadataDamagedError, match="segment s"):
        decode_custom_metadata(bytes.fromhex(data), "segment s")
