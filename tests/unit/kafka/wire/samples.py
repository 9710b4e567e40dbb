"""Messages of any API and version, filled with random values, by kio's schemas."""

import io
import typing
import uuid
from dataclasses import fields, is_dataclass
from datetime import timedelta
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

_WIDTHS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def sample(schema: Any, random: Random) -> Any:
    """An entity with every field set; fields that may be null sometimes are."""
    return schema(**{field.name: _value(field, random) for field in fields(schema)})


def encoded(entity: Any) -> bytes:
    sink = io.BytesIO()
    entity_writer(type(entity))(sink, entity)
    return sink.getvalue()


def plain(value: Any) -> Any:
    """An entity as nested dictionaries, durations in milliseconds: a form in which readers can be
    compared."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if hasattr(value, "_asdict"):
        return {name: plain(inner) for name, inner in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    return value


def _value(field: Any, random: Random) -> Any:
    alternatives = [kind for kind in typing.get_args(field.type) if kind is not type(None)]
    nullable = type(None) in typing.get_args(field.type)
    if nullable and "tag" not in field.metadata and random.random() < 0.2:
        return None
    kind = alternatives[0] if nullable else field.type
    if typing.get_origin(kind) is tuple:
        element = typing.get_args(kind)[0]
        return tuple(_one(element, field, random) for _ in range(random.randrange(4)))
    return _one(kind, field, random)


def _one(kind: Any, field: Any, random: Random) -> Any:
    if is_dataclass(kind):
        return sample(kind, random)
    return _primitive(field.metadata["kafka_type"], random)


def _primitive(kafka_type: str, random: Random) -> Any:
    if kafka_type in _WIDTHS:
        limit = 1 << (_WIDTHS[kafka_type] - 1)
        return random.randrange(-limit, limit)
    values: dict[str, Any] = {
        "bool": random.random() < 0.5,
        "string": "".join(random.choices("abc-üß", k=random.choice([0, 1, 7, 200]))),
        "records": random.randbytes(random.choice([1, 100, 300])),
        "bytes": random.randbytes(random.choice([0, 1, 100, 300])),
        "uuid": uuid.UUID(bytes=random.randbytes(16)),
        "timedelta_i32": timedelta(milliseconds=random.randrange(2**31)),
        "timedelta_i64": timedelta(milliseconds=random.randrange(2**40)),
        "error_code": random.choice(list(ErrorCode)),
    }
    return values[kafka_type]
