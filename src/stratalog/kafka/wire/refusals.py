"""The response to a request that failed as a whole, made from the response's schema.

The error stands where the schema has the first room for it: at the top, or else in every element
that answers an element of the request. An element of the response takes the fields that name it
from the element of the request; every other field is blank.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from stratalog.kafka.wire.api import ApiKey
from stratalog.kafka.wire.schema_fields import is_array, is_nullable, nested_schema


def refusal(
    key: ApiKey, version: int, body: object, code: ErrorCode, message: str
) -> Mapping[str, Any]:
    error = {"error_code": code, "error_message": message}
    return _entity(load_response_schema(key, version), body, error, named_by=None)


def can_refuse_unread(key: ApiKey, version: int) -> bool:
    """Tell whether a response can say an error without naming an element of its request."""
    return any(each.name == "error_code" for each in fields(load_response_schema(key, version)))


def _entity(
    schema: Any, asked: object, error: Mapping[str, Any], *, named_by: object
) -> dict[str, Any]:
    """`named_by` is the element of the request that this element of the response answers."""
    own = {field.name for field in fields(schema)}
    bare_name = _field_of_bare_name(schema, named_by)
    values: dict[str, Any] = {}
    for field in fields(schema):
        nested = nested_schema(field.type)
        if field.name in error:
            values[field.name] = error[field.name]
        elif nested is not None and is_array(field):
            says_error = "error_code" not in own and _can_say_error(nested)
            values[field.name] = _elements(nested, field.name, asked, error) if says_error else ()
        elif field.name == bare_name:
            values[field.name] = named_by
        elif field.default is MISSING:
            values[field.name] = _name_or_blank(field, named_by)
    return values


def _field_of_bare_name(schema: Any, named_by: object) -> str | None:
    """The field for an element of the request that is a name or a number without fields: the
    first one of its type. Other fields of this type, such as a group's state, stay blank."""
    if not isinstance(named_by, str | int):
        return None
    fitting = (
        field.name
        for field in fields(schema)
        if field.default is MISSING and type(_blank(field)) is type(named_by)
    )
    return next(fitting, None)


def _elements(
    schema: Any, name: str, asked: object, error: Mapping[str, Any]
) -> list[dict[str, Any]]:
    return [
        _entity(schema, element, error, named_by=element) for element in _asked_array(name, asked)
    ]


def _asked_array(name: str, asked: object) -> Sequence[Any]:
    """The array of the request that an array of the response answers: the one with its name, or
    else the first that has elements."""
    arrays = {
        each: value
        for each in getattr(asked, "_fields", ())
        if isinstance(value := getattr(asked, each), list)
    }
    return arrays.get(name) or next((array for array in arrays.values() if array), [])


def _names(field: Field[Any], named_by: object) -> bool:
    return hasattr(named_by, "_fields") and hasattr(named_by, field.name)


def _name_or_blank(field: Field[Any], named_by: object) -> Any:
    return getattr(named_by, field.name) if _names(field, named_by) else _blank(field)


def _blank(field: Field[Any]) -> Any:
    if is_array(field):
        return ()
    if is_nullable(field):
        return None
    kafka_type = field.metadata["kafka_type"]
    if kafka_type.startswith("timedelta"):
        return datetime.timedelta(0)
    return {"string": "", "bytes": b"", "bool": False}.get(kafka_type, -1)


def _can_say_error(schema: Any) -> bool:
    return any(
        field.name == "error_code"
        or ((inner := nested_schema(field.type)) and _can_say_error(inner))
        for field in fields(schema)
    )
