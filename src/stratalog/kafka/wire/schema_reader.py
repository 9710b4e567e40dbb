"""Reads requests into typed tuples, with code that is generated from kio's schemas.

A handler declares the request that it takes as `NamedTuple` classes that cover every version of
the API. A field has the name that Kafka's protocol guide gives it, in snake case, so durations end
in `_ms`; `count` and `index`, which are methods of tuples, get an underscore. A field that some
version lacks has a default. A field that the handler never looks at is left out of the class, and
skipped. `compiled_reader` checks a class against the schema of one version and generates a
function that reads this version.

The schemas are kio's, the reading is not, for two reasons. Its native reader reserves memory for
as many elements as an array claims to have, and the process is aborted when there is not so much:
sixteen hostile bytes would end the broker. And it fails on tagged fields that it does not know,
which a server must ignore. Here no length is believed that the rest of the request cannot hold, and
no more entries are read than the caller allows.

Tuples, not dataclasses: a frozen dataclass takes three times as long to make, and a Fetch of a
thousand partitions makes a thousand of them.
"""

import struct
import sys
import typing
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, Generic, NamedTuple, NoReturn, TypeAlias, TypeVar
from uuid import UUID

from kio.index import load_request_schema

from stratalog.kafka.wire.errors import (
    MalformedRequestError,
    SchemaMismatchError,
    TooManyEntriesError,
)
from stratalog.kafka.wire.primitives import INT16, INT32, ZERO_UUID, read_length, read_uvarint
from stratalog.kafka.wire.schema_fields import alternatives, is_array, is_nullable, without_none

_Body = TypeVar("_Body")
_Read: TypeAlias = Callable[[memoryview, int], tuple[Any, int]]
"""Reads a value at a position; returns it with the position after it."""

_FIXED = {
    "int8": ("b", int),
    "int16": ("h", int),
    "int32": ("i", int),
    "int64": ("q", int),
    "uint16": ("H", int),
    "float64": ("d", float),
    "bool": ("?", bool),
    "timedelta_i32": ("i", int),
    "timedelta_i64": ("q", int),
}


_NO_BOUND = sys.maxsize
_ENTRY_TEXT_BYTES_LOG = 8
"""A text or byte string counts as an entry for each 256 of its bytes, because it is copied."""


class _Allowance:
    """The entries that a request may still have while it is read: elements of arrays, tagged
    fields, and pieces of long texts."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = _NO_BOUND

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise TooManyEntriesError("the request has too many entries")


class Reader(Generic[_Body]):
    """Reads the body that begins at a position. Bytes after it are ignored, as Kafka does."""

    def __init__(self, read: _Read, allowance: _Allowance, name: str) -> None:
        self._read = read
        self._allowance = allowance
        self._name = name
        self.entries = 0
        """The entries of the body that was read last."""

    def __call__(self, frame: memoryview, position: int, max_entries: int = _NO_BOUND) -> _Body:
        self._allowance.left = max_entries
        try:
            request, end = self._read(frame, position)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise MalformedRequestError(f"not a request of {self._name}: {error}") from error
        if end > len(frame):
            raise MalformedRequestError(f"the request of {self._name} ends before its last field")
        self.entries = max_entries - self._allowance.left
        return typing.cast(_Body, request)


def compiled_reader(body: type[_Body], api_key: int, version: int) -> Reader[_Body]:
    allowance = _Allowance()
    read = _compiled(body, load_request_schema(api_key, version), allowance)
    return Reader(read, allowance, f"API {api_key}, version {version}")


def _compiled(body: Any, schema: Any, allowance: _Allowance) -> _Read:
    """`body` is None for an entity whose fields are all skipped."""
    source = _Source(body, schema, allowance)
    source.write()
    return source.compiled()


class _Declared(NamedTuple):
    """One field of a declared tuple."""

    alternatives: tuple[Any, ...]
    """Its annotation without None."""
    nullable: bool
    default: Any
    """MISSING if it has none."""


class _Source:
    """The generated function of one entity, line by line."""

    def __init__(self, body: Any, schema: Any, allowance: _Allowance) -> None:
        self._allowance = allowance
        self._schema = schema
        self._body = body
        self._declared = {} if body is None else _declared_fields(body)
        self._flexible: bool = schema.__flexible__
        self._names: dict[str, Any] = {"new": tuple.__new__, "body": body, "refuse_null": _refuse}
        self._lines = ["def read(frame, position):"]

    def compiled(self) -> _Read:
        names = dict(self._names)
        exec("\n    ".join(self._lines), names)
        read: _Read = names["read"]
        return read

    def write(self) -> None:
        plain = [field for field in fields(self._schema) if "tag" not in field.metadata]
        tagged = [field for field in fields(self._schema) if "tag" in field.metadata]
        self._check_absent([declared_name(field) for field in (*plain, *tagged)])
        self._write_plain(plain)
        if self._flexible:
            self._write_tags(tagged)
        values = "".join(f"{self._value(name)}, " for name in self._declared)
        made = f"new(body, ({values}))" if self._body is not None else "None"
        self._lines.append(f"return {made}, position")

    def _check_absent(self, present: Sequence[str]) -> None:
        for name, declared in self._declared.items():
            if name not in present and declared.default is MISSING:
                raise SchemaMismatchError(
                    f"{self._body.__name__}.{name} needs a default: {self._schema.__module__} "
                    "does not have it"
                )
        self._absent = {name for name in self._declared if name not in present}

    def _value(self, name: str) -> str:
        if name not in self._absent:
            return f"v_{name}"
        return self._bound(f"default_{name}", self._declared[name].default)

    def _bound(self, name: str, value: Any) -> str:
        self._names[name] = value
        return name

    def _write_plain(self, plain: Sequence[Field[Any]]) -> None:
        """Neighbouring fields of fixed size are unpacked together."""
        run: list[Field[Any]] = []
        for field in plain:
            if not is_array(field) and field.metadata.get("kafka_type") in _FIXED:
                run.append(field)
                continue
            self._write_fixed(run)
            run = []
            self._write_single(field)
        self._write_fixed(run)

    def _write_fixed(self, run: Sequence[Field[Any]]) -> None:
        if not run:
            return
        codes, targets = "", ""
        for field in run:
            code, _ = _FIXED[field.metadata["kafka_type"]]
            name = declared_name(field)
            if name in self._declared:
                self._check_type(field, self._declared[name])
                codes += code
                targets += f"v_{name}, "
            else:
                codes += f"{struct.calcsize(code)}x"
        layout = struct.Struct(f">{codes}")
        unpack = self._bound(f"unpack_{len(self._lines)}", layout.unpack_from)
        # Skipped fields are unpacked, too: this is where a request that is cut off is found.
        self._lines.append(f"{targets or '()'} = {unpack}(frame, position)".replace(",  =", ", ="))
        self._lines.append(f"position += {layout.size}")

    def _write_single(self, field: Field[Any]) -> None:
        name = declared_name(field)
        read = self._bound(f"read_{name}", self._field_reader(field))
        self._lines.append(f"v_{name}, position = {read}(frame, position)")
        if not is_nullable(field):
            self._lines.append(f"if v_{name} is None: refuse_null({name!r}, position)")

    def _write_tags(self, tagged: Sequence[Field[Any]]) -> None:
        """Known tags are read into their fields, unknown ones skipped, absent ones defaulted."""
        wanted = [field for field in tagged if declared_name(field) in self._declared]
        readers = {field.metadata["tag"]: self._field_reader(field) for field in wanted}
        self._bound("read_tags", _tags_reader(readers, self._allowance))
        self._lines.append("if frame[position] == 0:")
        self._lines.append("    position += 1; found = {}")
        self._lines.append("else:")
        self._lines.append("    found, position = read_tags(frame, position)")
        for field in wanted:
            name = declared_name(field)
            default = self._bound(f"default_{name}", _plain_default(field))
            self._lines.append(f"v_{name} = found.get({field.metadata['tag']}, {default})")

    def _field_reader(self, field: Field[Any]) -> _Read:
        declared = self._declared.get(declared_name(field))
        kind = _element_type(field)
        if isinstance(kind, type) and is_dataclass(kind):
            element = _compiled(self._element_body(field, declared), kind, self._allowance)
            if not is_array(field) and "tag" not in field.metadata and is_nullable(field):
                element = _nullable_entity_reader(element)
        else:
            if declared is not None:
                self._check_type(field, declared)
            element = self._primitive_reader(field.metadata["kafka_type"])
        if not is_array(field):
            return element
        return _array_reader(element, field, self._allowance, flexible=self._flexible)

    def _primitive_reader(self, kafka_type: str) -> _Read:
        if kafka_type == "string":
            return _string_reader(self._allowance, flexible=self._flexible)
        if kafka_type == "bytes":
            return _bytes_reader(self._allowance, flexible=self._flexible)
        if kafka_type == "records":
            return _records_reader(flexible=self._flexible)
        if kafka_type == "uuid":
            return _read_uuid
        return _fixed_reader(kafka_type)

    def _element_body(self, field: Field[Any], declared: _Declared | None) -> Any:
        """The declared class of a nested entity."""
        if declared is None:
            return None
        self._check_shape(field, declared)
        (kind,) = declared.alternatives
        return typing.get_args(kind)[0] if is_array(field) else kind

    def _check_type(self, field: Field[Any], declared: _Declared) -> None:
        self._check_shape(field, declared)
        kafka_type = field.metadata["kafka_type"]
        expected = _FIXED[kafka_type][1] if kafka_type in _FIXED else _VARIABLE[kafka_type]
        (kind,) = declared.alternatives
        kind = typing.get_args(kind)[0] if is_array(field) else kind
        if kind is not expected:
            raise SchemaMismatchError(f"{self._where(field)} is {kafka_type}, not {kind}")

    def _check_shape(self, field: Field[Any], declared: _Declared) -> None:
        if len(declared.alternatives) != 1:
            raise SchemaMismatchError(f"{self._where(field)} can only be one type or null")
        if is_array(field) != (typing.get_origin(declared.alternatives[0]) is Sequence_):
            raise SchemaMismatchError(f"{self._where(field)}: arrays are declared as Sequence")
        can_be_null = is_nullable(field) or (
            field.metadata.get("kafka_type") == "uuid" and not is_array(field)
        )
        if can_be_null and not declared.nullable:
            raise SchemaMismatchError(f"{self._where(field)} can be null")

    def _where(self, field: Field[Any]) -> str:
        return f"{self._body.__name__}.{declared_name(field)}"


Sequence_ = typing.get_origin(Sequence[int])
_VARIABLE = {"string": str, "bytes": bytes, "uuid": UUID, "records": memoryview}


def declared_name(field: Field[Any]) -> str:
    """Kafka's name of a field: kio leaves `_ms` out of the names of durations. The names of a
    tuple's own methods get an underscore."""
    is_duration = str(field.metadata.get("kafka_type")).startswith("timedelta")
    if field.name in ("count", "index"):
        return f"{field.name}_"
    return f"{field.name}_ms" if is_duration else field.name


def _declared_fields(body: Any) -> dict[str, _Declared]:
    hints = typing.get_type_hints(body)
    return {
        name: _Declared(
            tuple(without_none(hints[name])),
            type(None) in alternatives(hints[name]),
            body._field_defaults.get(name, MISSING),
        )
        for name in body._fields
    }


def _plain_default(field: Field[Any]) -> Any:
    if field.default is MISSING:
        return None
    if isinstance(field.default, timedelta):
        return field.default // timedelta(milliseconds=1)
    return field.default


def _refuse(name: str, position: int) -> NoReturn:
    raise MalformedRequestError(f"{name} before byte {position} is null")


def _tags_reader(readers: dict[int, _Read], allowance: _Allowance) -> _Read:
    def read(frame: memoryview, position: int) -> tuple[Any, int]:
        found = {}
        count, position = read_uvarint(frame, position)
        allowance.spend(count)
        for _ in range(count):
            tag, position = read_uvarint(frame, position)
            size, position = read_uvarint(frame, position)
            if tag in readers:
                found[tag], _ = readers[tag](frame[: position + size], position)
            position += size
        return found, position

    return read


def _nullable_entity_reader(element: _Read) -> _Read:
    """A byte says whether there is an entity at all: negative if not."""

    def read(frame: memoryview, position: int) -> tuple[Any, int]:
        if frame[position] >= 0x80:
            return None, position + 1
        return element(frame, position + 1)

    return read


def _array_reader(
    element: _Read, field: Field[Any], allowance: _Allowance, *, flexible: bool
) -> _Read:
    prefix = None if flexible else INT32
    no_nulls = field.metadata.get("kafka_type") in ("string", "bytes")

    def read(frame: memoryview, position: int) -> tuple[Any, int]:
        count, position = read_length(frame, position, prefix)
        if count < 0:
            return None, position
        allowance.spend(count)
        elements = []
        for _ in range(count):
            value, position = element(frame, position)
            elements.append(value)
        if no_nulls and None in elements:
            _refuse(f"an element of {field.name}", position)
        return elements, position

    return read


def _fixed_reader(kafka_type: str) -> _Read:
    layout = struct.Struct(f">{_FIXED[kafka_type][0]}")

    def read(frame: memoryview, position: int) -> tuple[Any, int]:
        return layout.unpack_from(frame, position)[0], position + layout.size

    return read


def _string_reader(allowance: _Allowance, *, flexible: bool) -> _Read:
    prefix = None if flexible else INT16

    def read(frame: memoryview, position: int) -> tuple[str | None, int]:
        size, position = read_length(frame, position, prefix)
        if size < 0:
            return None, position
        if pieces := size >> _ENTRY_TEXT_BYTES_LOG:
            allowance.spend(pieces)
        return str(frame[position : position + size], "utf-8"), position + size

    return read


def _bytes_reader(allowance: _Allowance, *, flexible: bool) -> _Read:
    prefix = None if flexible else INT32

    def read(frame: memoryview, position: int) -> tuple[bytes | None, int]:
        size, position = read_length(frame, position, prefix)
        if size < 0:
            return None, position
        allowance.spend(size >> _ENTRY_TEXT_BYTES_LOG)
        return bytes(frame[position : position + size]), position + size

    return read


def _records_reader(*, flexible: bool) -> _Read:
    """Records stay where they are in the frame."""
    prefix = None if flexible else INT32

    def read(frame: memoryview, position: int) -> tuple[memoryview | None, int]:
        size, position = read_length(frame, position, prefix)
        if size < 0:
            return None, position
        return frame[position : position + size], position + size

    return read


def _read_uuid(frame: memoryview, position: int) -> tuple[UUID | None, int]:
    (raw,) = _UUID.unpack_from(frame, position)
    return _uuid(raw), position + _UUID.size


@lru_cache(maxsize=1024)
def _uuid(raw: bytes) -> UUID | None:
    """Clients name the same few topics again and again, and a UUID takes long to make."""
    identifier = UUID(bytes=raw)
    return None if identifier == ZERO_UUID else identifier


_UUID = struct.Struct("16s")


def _element_type(field: Field[Any]) -> Any:
    (kind,) = without_none(field.type)
    return typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else kind
