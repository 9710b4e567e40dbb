"""Reads the header of a request, and finds the start of its body."""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.errors import MalformedRequestError, UnsupportedRequestError
from stratalog.kafka.wire.primitives import INT16, read_length, skip_tags

_HEAD = struct.Struct(">hhi")
_KEYS = {key.value: key for key in ApiKey}
"""To call the class of an enum takes ten times as long."""
SMALLEST_REQUEST_BYTES = _HEAD.size


class RequestHeader(NamedTuple):
    key: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    body_start: int
    """0 for an ApiVersions request of a version that is not served, whose body cannot be read."""


def parse_header(frame: memoryview, served: Mapping[ApiKey, Versions]) -> RequestHeader:
    key, version, correlation_id = _HEAD.unpack_from(frame)
    versions = served.get(key)
    if versions is None:
        raise UnsupportedRequestError(f"API key {key} is not served")
    api = _KEYS[key]
    first, last, first_flexible = versions
    if not first <= version <= last:
        if api is ApiKey.API_VERSIONS:
            return RequestHeader(api, version, correlation_id, None, 0)
        raise UnsupportedRequestError(f"{api.name} version {version} is not served")
    try:
        client_id, position = _client_id(frame)
        if version >= first_flexible:
            position = skip_tags(frame, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedRequestError(f"the header of a {api.name} request is cut off") from error
    return RequestHeader(api, version, correlation_id, client_id, position)


def _client_id(view: memoryview) -> tuple[str | None, int]:
    """The client's name has the old form of a string in every version of the header."""
    size, position = read_length(view, _HEAD.size, INT16)
    if size < 0:
        return None, position
    return str(view[position : position + size], "utf-8"), position + size


def peek_api_key(head: bytearray) -> int:
    """Return the API key of a frame of which at least two bytes have arrived."""
    (key,) = INT16.unpack_from(head)
    return int(key)
