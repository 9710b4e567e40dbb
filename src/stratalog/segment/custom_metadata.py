"""The custom metadata that Aiven's plugin may keep with a segment: up to three tagged fields."""

from dataclasses import dataclass

from stratalog.batch.errors import BatchDamagedError
from stratalog.batch.varint import read_varlong, write_varlong
from stratalog.segment.compact_encoding import CompactReader, CompactWriter
from stratalog.segment.errors import CustomMetadataDamagedError

MAX_BYTES = 128
"""The most bytes that Kafka takes by default. More stops the copying of a partition."""

_REMOTE_SIZE = 0
_OBJECT_PREFIX = 1
_OBJECT_KEY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomMetadata:
    remote_bytes: int | None = None
    """The size of all three objects."""
    object_prefix: str | None = None
    """The prefix that was configured when the segment was written."""
    object_key: str | None = None
    """The key below the prefix, without a suffix."""


def encode_custom_metadata(metadata: CustomMetadata) -> bytes:
    """Encode the fields. Without any field the result is empty, as in the plugin."""
    tags: dict[int, bytes] = {}
    if metadata.remote_bytes is not None:
        size = bytearray()
        write_varlong(size, metadata.remote_bytes)
        tags[_REMOTE_SIZE] = bytes(size)
    for tag, text in (
        (_OBJECT_PREFIX, metadata.object_prefix),
        (_OBJECT_KEY, metadata.object_key),
    ):
        if text is not None:
            writer = CompactWriter()
            writer.text(text)
            tags[tag] = writer.getvalue()
    if not tags:
        return b""
    writer = CompactWriter()
    writer.tags(tags)
    return writer.getvalue()


def decode_custom_metadata(data: bytes, name: str) -> CustomMetadata:
    """Read the custom metadata of the segment `name`. Unknown fields are ignored."""
    try:
        return _decode(data)
    except (ValueError, BatchDamagedError) as error:
        raise CustomMetadataDamagedError(f"{name}: its custom metadata: {error}") from None


def _decode(data: bytes) -> CustomMetadata:
    if not data:
        return CustomMetadata()
    reader = CompactReader(data)
    tags = reader.tags()
    reader.finish()
    return CustomMetadata(
        remote_bytes=_varlong(tags[_REMOTE_SIZE]) if _REMOTE_SIZE in tags else None,
        object_prefix=_text(tags[_OBJECT_PREFIX]) if _OBJECT_PREFIX in tags else None,
        object_key=_text(tags[_OBJECT_KEY]) if _OBJECT_KEY in tags else None,
    )


def _varlong(data: bytes) -> int:
    value, end = read_varlong(data, 0)
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes follow the size")
    return value


def _text(data: bytes) -> str:
    reader = CompactReader(data)
    text = reader.text()
    reader.finish()
    return text
