"""Rules for keys and user metadata that every store can keep unchanged.

The rules are the narrowest of the stores we know: S3's length of keys, a file system's length of
one part, HTTP's alphabet of header values, Azure's and S3's lower-case metadata names.
"""

import re
from collections.abc import Mapping

from stratalog.objects.errors import BadKeyError, BadMetadataError

MAX_PREFIX_BYTES = 120
MAX_KEY_BYTES = 900
"""S3 takes 1024 bytes, with the prefix that all keys of a store may share."""
MAX_PART_BYTES = 255
MAX_METADATA_BYTES = 2048
RESERVED_PART = ".stratalog"
"""The folder store keeps its own files below this name, so no key may begin with it."""

_METADATA_NAME = re.compile(r"[a-z][a-z0-9-]*")
_METADATA_VALUE = re.compile(r"([!-~]([ -~]*[!-~])?)?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def check_key(key: str) -> None:
    complaint = _complaint(key)
    if complaint is not None:
        raise BadKeyError(f"the object key {key!r} {complaint}")


def check_prefix(prefix: str) -> None:
    """Check only the whole parts of a prefix: its end can be a part of a name."""
    folder = prefix.rpartition("/")[0]
    if folder or prefix.startswith("/"):
        check_key(folder)


def is_key(key: str) -> bool:
    return _complaint(key) is None


def _complaint(key: str) -> str | None:
    if _CONTROL.search(key):
        return "has a control character or is no Unicode text"
    parts = key.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "has an empty part, '.' or '..' between its slashes"
    if parts[0] == RESERVED_PART:
        return f"begins with {RESERVED_PART}/, which the store keeps for itself"
    if len(key.encode()) > MAX_KEY_BYTES:
        return f"is longer than {MAX_KEY_BYTES} bytes"
    if any(len(part.encode()) > MAX_PART_BYTES for part in parts):
        return f"has a part longer than {MAX_PART_BYTES} bytes"
    return None


def check_metadata(metadata: Mapping[str, str]) -> None:
    for name, value in metadata.items():
        if not _METADATA_NAME.fullmatch(name):
            raise BadMetadataError(
                f"the metadata name {name!r} must be lower-case letters, digits and dashes"
            )
        if not _METADATA_VALUE.fullmatch(value):
            raise BadMetadataError(
                f"the value of the metadata {name!r} must be printable ASCII without outer spaces"
            )
    size_bytes = sum(len(name) + len(value) for name, value in metadata.items())
    if size_bytes > MAX_METADATA_BYTES:
        raise BadMetadataError(f"the metadata is longer than {MAX_METADATA_BYTES} bytes")
