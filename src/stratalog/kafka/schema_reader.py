"""Reads requests by kio's schemas, into named tuples that have the schemas' field names.

The schemas are kio's, the reading is not, for two reasons. Its native reader reserves memory for
as many elements as an array claims to have, and the process is aborted when there is not so much:
sixteen hostile bytes would end the broker. And it fails on tagged fields that it does not know,
which a server must ignore. Here no length is believed that the rest of the request cannot hold.

Durations are left in milliseconds, and the zero UUID is None.
"""

import struct
import typing
from collections import namedtuple
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any, TypeAlias
from uuid import UUID

from kio.index import load_request_schema

from stratalog.kafka.errors import MalformedRequestError
from stratalog.kafka.wire import INT16, INT32, ZERO_UUID, read_length, read_uvarint

_Frame: TypeAlias = memoryview
_Read: TypeAlias = Callable[[_Frame, int], tuple[Any, int]]
"""Reads a value at a position; returns it with the position after it."""
_Step: TypeAlias = Callable[[_Frame, int, list[Any]], int]
"""Reads one or more fields at a position into a list; returns the position after them."""

_FIXED = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "float64": "d",
    "bool": "?",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
}

_tuple_type: Callable[[str, list[str]], Any] = namedtuple


def read_request(api_key: int, version: int, frame: memoryview, position: int) -> Any:
    """The request whose body begins at `position`. Bytes after it are ignored, as Kafka does."""
    read = _entity_reader(load_request_schema(api_key, version))
    try:
        request, end = read(frame, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedRequestError(
            f"not a request of API {api_key}, version {version}: {error}"
        ) from error
    if end > len(frame):
        raise MalformedRequestError(f"the request of API {api_key} ends before its last field")
    return request


@cache
def _entity_reader(schema: type[Any]) -> _Read:
    flexible: bool = schema.__flexible__
    plain = [field for field in fields(schema) if "tag" not in field.metadata]
    tagged = [field for field in fields(schema) if "tag" in field.metadata]
    make = _tuple_type(schema.__name__, [field.name for field in (*plain, *tagged)])._make
    steps = _steps(plain, flexible=flexible)
    if flexible:
        steps.append(_tags_step(tagged))

    def read(frame: _Frame, position: int) -> tuple[Any, int]:
        values: list[Any] = []
        for step in steps:
            position = step(frame, position, values)
        return make(values), position

    return read


def _steps(plain: Sequence[Field[Any]], *, flexible: bool) -> list[_Step]:
    """Neighbouring fields of fixed size are read in one step."""
    steps: list[_Step] = []
    run = ""
    for field in plain:
        if not _is_array(field) and (code := _FIXED.get(field.metadata.get("kafka_type", ""))):
            run += code
            continue
        if run:
            steps.append(_fixed_step(run))
            run = ""
        steps.append(_single_step(_field_reader(field, flexible=flexible)))
    return [*steps, _fixed_step(run)] if run else steps


def _fixed_step(codes: str) -> _Step:
    layout = struct.Struct(f">{codes}")

    def step(frame: _Frame, position: int, values: list[Any]) -> int:
        values += layout.unpack_from(frame, position)
        return position + layout.size

    return step


def _single_step(read: _Read) -> _Step:
    def step(frame: _Frame, position: int, values: list[Any]) -> int:
        value, position = read(frame, position)
        values.append(value)
        return position

    return step


def _tags_step(tagged: Sequence[Field[Any]]) -> _Step:
    """Known tags are read into their fields, unknown ones skipped, absent ones defaulted."""
    readers = {
        field.metadata["tag"]: (place, _field_reader(field, flexible=True))
        for place, field in enumerate(tagged)
    }
    defaults = [None if field.default is MISSING else field.default for field in tagged]

    def step(frame: _Frame, position: int, values: list[Any]) -> int:
        count, position = read_uvarint(frame, position)
        if not count:
            values += defaults
            return position
        found = list(defaults)
        for _ in range(count):
            tag, position = read_uvarint(frame, position)
            size, position = read_uvarint(frame, position)
            if tag in readers:
                place, read = readers[tag]
                found[place], _ = read(frame[: position + size], position)
            position += size
        values += found
        return position

    return step


def _field_reader(field: Field[Any], *, flexible: bool) -> _Read:
    kind = _element_type(field)
    if isinstance(kind, type) and is_dataclass(kind):
        element = _entity_reader(kind)
        if not _is_array(field) and "tag" not in field.metadata and _is_nullable(field):
            element = _nullable_entity_reader(element)
    else:
        element = _primitive_reader(field.metadata["kafka_type"], flexible=flexible)
    read = _array_reader(element, flexible=flexible) if _is_array(field) else element
    nullable = "tag" in field.metadata or _is_nullable(field)
    return read if nullable else _never_null(read, field.name)


def _nullable_entity_reader(element: _Read) -> _Read:
    """A byte tells whether there is an entity at all: negative if not."""

    def read(frame: _Frame, position: int) -> tuple[Any, int]:
        if frame[position] >= 0x80:
            return None, position + 1
        return element(frame, position + 1)

    return read


def _never_null(read: _Read, name: str) -> _Read:
    def read_checked(frame: _Frame, position: int) -> tuple[Any, int]:
        value, end = read(frame, position)
        if value is None:
            raise MalformedRequestError(f"{name} at byte {position} is null")
        return value, end

    return read_checked


def _array_reader(element: _Read, *, flexible: bool) -> _Read:
    prefix = None if flexible else INT32

    def read(frame: _Frame, position: int) -> tuple[Any, int]:
        count, position = read_length(frame, position, prefix)
        if count < 0:
            return None, position
        elements = []
        for _ in range(count):
            value, position = element(frame, position)
            elements.append(value)
        return elements, position

    return read


def _primitive_reader(kafka_type: str, *, flexible: bool) -> _Read:
    if kafka_type == "string":
        return _string_reader(flexible=flexible)
    if kafka_type == "bytes":
        return _bytes_reader(flexible=flexible)
    if kafka_type == "uuid":
        return _read_uuid
    layout = struct.Struct(f">{_FIXED[kafka_type]}")

    def read(frame: _Frame, position: int) -> tuple[Any, int]:
        return layout.unpack_from(frame, position)[0], position + layout.size

    return read


def _string_reader(*, flexible: bool) -> _Read:
    prefix = None if flexible else INT16

    def read(frame: _Frame, position: int) -> tuple[Any, int]:
        size, position = read_length(frame, position, prefix)
        if size < 0:
            return None, position
        return str(frame[position : position + size], "utf-8"), position + size

    return read


def _bytes_reader(*, flexible: bool) -> _Read:
    prefix = None if flexible else INT32

    def read(frame: _Frame, position: int) -> tuple[Any, int]:
        size, position = read_length(frame, position, prefix)
        if size < 0:
            return None, position
        return bytes(frame[position : position + size]), position + size

    return read


def _read_uuid(frame: _Frame, position: int) -> tuple[UUID | None, int]:
    (raw,) = _UUID.unpack_from(frame, position)
    identifier = UUID(bytes=raw)
    return None if identifier == ZERO_UUID else identifier, position + _UUID.size


_UUID = struct.Struct("16s")


def _is_array(field: Field[Any]) -> bool:
    return any(typing.get_origin(kind) is tuple for kind in _without_none(field.type))


def _element_type(field: Field[Any]) -> Any:
    (kind,) = _without_none(field.type)
    return typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else kind


def _is_nullable(field: Field[Any]) -> bool:
    return type(None) in typing.get_args(field.type)


def _without_none(annotation: Any) -> list[Any]:
    """The alternatives of an annotation. kio's schemas have one at most beside None."""
    alternatives = typing.get_args(annotation)
    if type(None) not in alternatives:
        return [annotation]
    return [kind for kind in alternatives if kind is not type(None)]
