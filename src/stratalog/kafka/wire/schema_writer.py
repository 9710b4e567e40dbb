"""Writes responses by kio's schemas, from plain values named like the schemas' fields.

One set of values serves every version of an API: fields that a version lacks are left out, and
fields that the values lack take the schema's default.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from datetime import timedelta
from functools import cache
from typing import Any, TypeAlias

from kio.index import load_response_schema
from kio.serial import entity_writer

from stratalog.kafka.wire.api import ApiKey
from stratalog.kafka.wire.schema_fields import nested_schema

Values: TypeAlias = Mapping[str, Any]

_NO_THROTTLE = timedelta(0)


def write_response(key: ApiKey, version: int, values: Values) -> list[bytes]:
    schema: Any = load_response_schema(key, version)
    sink = io.BytesIO()
    entity_writer(schema)(sink, entity_of(schema, values))
    return [sink.getvalue()]


def entity_of(schema: Any, values: Values) -> Any:
    """The schema's object with these values."""
    known = {}
    for field, nested in _layout(schema):
        if field.name in values:
            known[field.name] = _value(nested, values[field.name])
        elif field.name == "throttle_time":
            known[field.name] = _NO_THROTTLE
        elif field.default is MISSING:
            raise ValueError(f"{schema.__name__} needs a value for {field.name!r}")
    return schema(**known)


def _value(nested: Any, value: Any) -> Any:
    if nested is None or value is None:
        return value
    if isinstance(value, Sequence):
        return tuple(entity_of(nested, element) for element in value)
    return entity_of(nested, value)


@cache
def _layout(schema: Any) -> list[tuple[Field[Any], Any]]:
    """The fields of a schema, each with the schema of its elements if it has one."""
    return [(field, nested_schema(field.type)) for field in fields(schema)]
