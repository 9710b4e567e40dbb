"""A request as it came from the socket: its header, read by hand, and where its body begins."""

import struct
from contextvars import ContextVar
from typing import NamedTuple

from stratalog.kafka.api import SERVED, ApiKey, is_flexible
from stratalog.kafka.errors import MalformedRequestError, UnsupportedRequestError
from stratalog.kafka.wire import INT16, read_length, skip_tags

_HEAD = struct.Struct(">hhi")
SMALLEST_REQUEST_BYTES = _HEAD.size
CLIENT_HOST: ContextVar[str] = ContextVar("CLIENT_HOST", default="")
"""Where the connection that is being read comes from."""


class Request(NamedTuple):
    key: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    frame: memoryview
    body_start: int
    """0 in an ApiVersions request of a version that is not served: nothing else is known of it."""
    client_host: str = ""
    """Where the request comes from, as Kafka shows it to administrators: with a leading slash."""


def parse_request(frame: bytearray) -> Request:
    key, version, correlation_id = _HEAD.unpack_from(frame)
    view = memoryview(frame)
    if key not in SERVED:
        raise UnsupportedRequestError(f"API key {key} is not served")
    api = ApiKey(key)
    if not SERVED[api].first <= version <= SERVED[api].last:
        if api is ApiKey.API_VERSIONS:
            return Request(api, version, correlation_id, None, view, 0)
        raise UnsupportedRequestError(f"{api.name} version {version} is not served")
    try:
        client_id, position = _client_id(view)
        if is_flexible(api, version):
            position = skip_tags(view, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedRequestError(f"the header of a {api.name} request is cut off") from error
    return Request(api, version, correlation_id, client_id, view, position, f"/{CLIENT_HOST.get()}")


def _client_id(view: memoryview) -> tuple[str | None, int]:
    """The client's name has the old form of a string in every version of the header."""
    size, position = read_length(view, _HEAD.size, INT16)
    if size < 0:
        return None, position
    return str(view[position : position + size], "utf-8"), position + size


def peek_api_key(head: bytearray) -> int:
    """The API key of a frame of which at least two bytes are there."""
    (key,) = INT16.unpack_from(head)
    return int(key)
