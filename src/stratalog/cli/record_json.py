"""Records as JSON objects, as `consume --json` writes and `produce --json` reads them.

Bytes that are UTF-8 stand as text. Others stand in base 64 under a name that says so, such as
`value_base64`, so that a record survives the way out and back in unchanged.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stratalog.cli.errors import RecordJsonError

_NAMES = frozenset(
    {"key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp"}
)
_IGNORED = frozenset({"topic", "offset"})
"""Written by `consume`. A record that is produced gets a topic and an offset of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = field(default=())
    partition: int | None = None
    timestamp: int | None = None
    """Milliseconds since 1970."""


def record_to_json(record: Record, *, topic: str, offset: int) -> dict[str, object]:
    return {
        "topic": topic,
        "partition": record.partition,
        "offset": offset,
        "timestamp": record.timestamp,
        **_named_bytes("key", record.key),
        **_named_bytes("value", record.value),
        "headers": [{"key": name, **_named_bytes("value", data)} for name, data in record.headers],
    }


def record_from_json(line: bytes, *, number: int) -> Record:
    """Read one line; `number` is for the error message."""
    try:
        document = json.loads(line)
        if not isinstance(document, dict):
            raise ValueError("it is not an object")
        _reject_unknown(document, _NAMES | _IGNORED)
        return Record(
            key=_bytes(document, "key"),
            value=_bytes(document, "value"),
            headers=_headers(document.get("headers")),
            partition=_integer(document, "partition"),
            timestamp=_integer(document, "timestamp"),
        )
    except ValueError as error:
        raise RecordJsonError(f"line {number} is not a record in JSON: {error}") from error


def _named_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}


def _reject_unknown(document: Mapping[str, Any], known: frozenset[str]) -> None:
    unknown = sorted(document.keys() - known)
    if unknown:
        raise ValueError(f'unknown name "{unknown[0]}"; known are {", ".join(sorted(known))}')


def _bytes(document: Mapping[str, Any], name: str) -> bytes | None:
    encoded = document.get(f"{name}_base64")
    if encoded is not None:
        return b64decode(_text(f"{name}_base64", encoded), validate=True)
    value = document.get(name)
    return None if value is None else _text(name, value).encode()


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f'"{name}" must be a text')
    return value


def _integer(document: Mapping[str, Any], name: str) -> int | None:
    value = document.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError(f'"{name}" must be a whole number')
    return value


def _headers(value: object) -> list[tuple[str, bytes | None]]:
    """A list of `{"key": ..., "value": ...}`, since names may repeat, or simply an object."""
    if value is None:
        return []
    if isinstance(value, dict):
        return [
            (name, data if data is None else _text(name, data).encode())
            for name, data in value.items()
        ]
    if isinstance(value, list) and all(isinstance(header, dict) for header in value):
        return [(_text("key", each.get("key")), _bytes(each, "value")) for each in value]
    raise ValueError('"headers" must be an object, or a list of objects with key and value')
